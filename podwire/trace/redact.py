"""Hides secrets in what a recorder sends, by position: inside the process that has them. Pure.

A position is the kind of content and the path in it. What is hidden is replaced by `(redacted)`; the names of
variables and keys stay.

| content                    | hidden                                                                             |
|----------------------------|------------------------------------------------------------------------------------|
| Secret, and patches of one | all but kind, metadata without annotations, type, and names of the keys            |
| TokenRequest, TokenReview  | `status.token`, `spec.token`                                                       |
| other objects and patches  | `env[].value`, `httpHeaders[].value`, the annotation in which kubectl keeps a copy |
| requests through a proxy   | bodies; the query, as for exec, attach and portforward                             |
| CNI environment            | all but the variables of the specification; CNI_ARGS that do not name the pod      |
| CNI configuration          | values of keys that neither the specification nor a common plugin defines          |
| protobuf messages          | see `redact_messages`                                                              |

Bodies that are not JSON are not sent at all. Free text is sent as it is: error messages, and what a program prints.
Values of ConfigMaps, and commands in the specification of a pod, are not secrets.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

HIDDEN = "(redacted)"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_SECRETS = re.compile(r"/(?:api/v1(?:/namespaces/[^/]+)?|registry)/secrets(?:/|$)")
_TOKENS = re.compile(r"/serviceaccounts/[^/]+/token$|/tokenreviews$")
_FORWARDED = re.compile(r"/(?:pods|services|nodes)/[^/]+/proxy(?:/|$)")
_STREAMED = re.compile(r"/pods/[^/]+/(?:exec|attach|portforward)$")

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_VALUES = re.compile(rb'"(?:env|httpHeaders)"\s*+:\s*+\[([^\[\]"]*+(?:' + _TEXT + rb'[^\[\]"]*+)*+)\]', re.DOTALL)
_VALUE = re.compile(rb'"value"\s*+:\s*+' + _TEXT, re.DOTALL)
_COPY = re.compile(rb'"kubectl\.kubernetes\.io/last-applied-configuration"\s*+:\s*+' + _TEXT, re.DOTALL)
_MANAGED = f'"f:{LAST_APPLIED}"'.encode()
_HIDDEN_COPY = f'"{LAST_APPLIED}":"{HIDDEN}"'.encode()
_HIDDEN_VALUE = f'"value":"{HIDDEN}"'.encode()
_ESCAPED_NAME = re.compile(rb"\\u00[4-7]")
"""A letter that need not be escaped: it may be one of a key."""

_UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""Errors for a body that is not JSON, or nested too deeply to be looked through."""

_LISTS_OF_VALUES = ("env", "httpHeaders")
_NAMES_OF_SECRETS = frozenset({"apiVersion", "kind", "type", "immutable", "op", "path", "from"})
"""Fields of a Secret, or of an operation of a JSON patch, that have no content of it."""


_LONGEST_KNOWN = 200
"""Bytes of a method that is remembered."""


def position_of(method: str) -> "Position":
    """Returns the position of a method; a call has at least two hops with the same."""
    return _remembered(method) if len(method) <= _LONGEST_KNOWN else Position(method)


class Position:
    """The part of a position that the method of a call gives: `VERB PATH?QUERY`, or `verb KEY` for a store."""

    __slots__ = ("_is_forwarded", "_is_secret", "_is_token", "_needs_parser", "is_recorded", "method", "shows_events")

    def __init__(self, method: str) -> None:
        path, has_query, _ = method.partition(" ")[2].partition("?")
        is_http = path.startswith("/") and not path.startswith("/registry/")
        self.is_recorded = not is_http or path.startswith("/api/v1/")
        """HTTP is recorded only for resources."""
        if path.startswith("/apis/"):
            self.is_recorded = path.count("/") > 3
        self.shows_events = not is_http or path.endswith("/pods")
        """Events of a stream are recorded only for pods."""
        self._is_secret = "/secrets" in path and _SECRETS.match(path) is not None
        self._is_token = "/token" in path and _TOKENS.search(path) is not None
        self._is_forwarded = "/proxy" in path and _FORWARDED.search(path) is not None
        self._needs_parser = self._is_secret or self._is_token
        self.method = method
        """The method; for a request that is passed on to a node or pod, without its query: commands, passwords."""
        if has_query and (self._is_forwarded or _STREAMED.search(path)):
            self.method = f"{method.partition('?')[0]}?{HIDDEN}"

    def json(self, body: bytes) -> Any:
        """Returns JSON without its secrets, or what was cut."""
        if self._is_forwarded:
            return {"cut": len(body)}
        if not self._needs_parser and (body[:1] == b"{" or not body.lstrip().startswith(b"[")):
            shown = _replaced(body)
            if shown is not None:
                return msgspec.Raw(shown)
        try:
            return self._value(msgspec.json.decode(body))
        except _UNREADABLE:
            return {"cut": len(body)}

    def _value(self, value: Any) -> Any:
        if self._is_secret and not (isinstance(value, dict) and value.get("kind") == "Status"):
            return _secret(value)
        if self._is_token and isinstance(value, dict):
            for name in ("spec", "status"):
                if isinstance(part := value.get(name), dict) and part.get("token"):
                    value[name] = {**part, "token": HIDDEN}
        return _visible(value)


_remembered = lru_cache(256)(Position)


def _replaced(body: bytes) -> bytes | None:
    """Returns the text of an object with its secrets replaced; None if only a parser can be sure that it finds all.

    Most objects have none; most of the others are pods with a few variables. A needle whose last byte is rare is found
    faster, hence `"env`, of which `"env"` is one.
    """
    if b'"Secret' in body or (b"\\" in body and _ESCAPED_NAME.search(body)):
        return None
    if b"last-applied" in body:
        copies = body.count(b"last-applied") - body.count(_MANAGED)
        body, replaced = _COPY.subn(_HIDDEN_COPY, body)
        if replaced != copies:
            return None
    shown: bytes | None = body
    if b'"env' in body:
        shown = _lists_replaced(body, b'"env"')
    if shown is not None and b"httpHeaders" in shown:
        shown = _lists_replaced(shown, b'"httpHeaders"')
    return shown


_KEY, _MOST_LISTS, _LONGEST_LIST = 96, 64, 8192
_lists: dict[bytes, tuple[bytes, bytes]] = {}
"""Lists of values and what they become, by their first bytes. The object of a pod passes a dozen times while it starts,
in requests, answers, writes and watch events, always with the same lists. They stay in this process, which has the
objects anyway."""


def _lists_replaced(body: bytes, name: bytes) -> bytes | None:
    parts: list[bytes] = []
    end, start = 0, body.find(name)
    while start >= 0:
        key = body[start : start + _KEY]
        text, hidden_text = _lists.get(key, (b"", b""))
        if not text or not body.startswith(text, start):
            match = _VALUES.match(body, start)
            if match is None:
                return None
            text = match[0]
            hidden_text, replaced = _VALUE.subn(_HIDDEN_VALUE, text)
            if replaced != hidden_text.count(b'"value"'):
                return None
            if len(text) <= _LONGEST_LIST:
                if len(_lists) >= _MOST_LISTS:
                    _lists.clear()
                _lists[key] = text, hidden_text
        parts += (body[end:start], hidden_text)
        end = start + len(text)
        start = body.find(name, end)
    return b"".join((*parts, body[end:]))


def _secret(value: Any) -> Any:
    """A Secret, a list or a patch of them: only the fields that are known to be harmless keep their values."""
    if isinstance(value, list):
        return [_secret(item) for item in value]
    if not isinstance(value, dict):
        return HIDDEN
    result = {}
    for name, part in value.items():
        if name in _NAMES_OF_SECRETS:
            result[name] = part
        elif name == "metadata" and isinstance(part, dict):
            result[name] = {key: hidden(field) if key == "annotations" else field for key, field in part.items()}
        elif name in ("items", "rows", "object"):
            result[name] = _secret(part)
        else:
            result[name] = hidden(part)
    return result


def _visible(value: Any) -> Any:
    """Any object but a Secret. Calls no function for scalars: most values are scalars, and there are many."""
    if isinstance(value, dict):
        return _secret(value) if value.get("kind") in ("Secret", "SecretList") else _object(value)
    return [_visible(item) for item in value] if isinstance(value, list) else value


def _object(value: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for name, part in value.items():
        if isinstance(part, dict):
            result[name] = _annotations(part) if name == "annotations" else _visible(part)
        elif isinstance(part, list):
            result[name] = [_named_value(item) for item in part] if name in _LISTS_OF_VALUES else _visible(part)
        else:
            result[name] = part
    if isinstance(path := value.get("path"), str) and "value" in value and "op" in value:
        result["value"] = _patched(path, result["value"])
    return result


def _named_value(value: Any) -> Any:
    """An entry of `env` or `httpHeaders`."""
    if not isinstance(value, dict):
        return HIDDEN
    return {name: HIDDEN if name == "value" else part for name, part in value.items()}


def _annotations(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, LAST_APPLIED: HIDDEN} if LAST_APPLIED in value else value


def _patched(path: str, value: Any) -> Any:
    """The value of one operation of a JSON patch, whose path ends at a position or goes through one."""
    steps = path.split("/")
    if any(name in steps for name in _LISTS_OF_VALUES) or steps[-1] == LAST_APPLIED.replace("/", "~1"):
        return hidden(value)
    return _annotations(value) if steps[-1] == "annotations" and isinstance(value, dict) else value


def hidden(value: Any) -> Any:
    """Hides all strings and numbers below a value; the names of keys stay."""
    if isinstance(value, dict):
        return {name: hidden(part) for name, part in value.items()}
    if isinstance(value, list):
        return [hidden(item) for item in value]
    return value if value is None or isinstance(value, bool) or value == "" else HIDDEN


# CNI

_VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH", "CNI_NETNS_OVERRIDE")
_ARGUMENTS = frozenset({
    "IgnoreUnknown", "K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID", "IP", "MAC",
})  # fmt: skip
_CAPABILITIES = frozenset({
    "aliases", "bandwidth", "cgroupPath", "deviceID", "dns", "infinibandGUID", "ipRanges", "ips", "mac", "portMappings",
})  # fmt: skip
_KEYS = frozenset({
    # the specification
    "capabilities", "cni.dev/attachments", "cni.dev/valid-attachments", "cniVersion", "cniVersions", "disableCheck",
    "disableGC", "dns", "name", "plugins", "prevResult", "type",
    # the reference plugins and ours
    "addresses", "allmulti", "backend", "bcqueuelen", "bridge", "conditionsV4", "conditionsV6", "dataDir", "device",
    "egressBurst", "egressRate", "externalSetMarkChain", "firewalldZone", "gateway", "hairpinMode", "hwaddr",
    "ingressBurst", "ingressPolicy", "ingressRate", "ipMasqBackend", "ipspoofchk", "iptablesAdminChainName",
    "kernelpath", "mac", "macspoofchk", "master", "mode", "mtu", "pciBusID", "rangeEnd", "rangeStart", "ranges",
    "resolvConf", "routes", "shapedSubnets", "subnet", "sysctl", "unshapedSubnets", "vlanTrunk",
})  # fmt: skip


def cni_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the CNI specification."""
    result = {name: env[name] for name in _VARIABLES if name in env}
    if "CNI_ARGS" in env:
        pairs = (pair.partition("=") for pair in env["CNI_ARGS"].split(";"))
        shown = (
            f"{name}{equals}{value if name in _ARGUMENTS or not equals else HIDDEN}" for name, equals, value in pairs
        )
        result["CNI_ARGS"] = ";".join(shown)
    return result


def cni_configuration(stdin: bytes) -> Any:
    """Returns the configuration that a plugin gets; of one that is not JSON, only the size."""
    if not stdin:
        return ""
    try:
        config = msgspec.json.decode(stdin)
        return _cni(config) if isinstance(config, dict) else {"cut": len(stdin)}
    except _UNREADABLE:
        return {"cut": len(stdin)}


def _cni(config: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for name, part in config.items():
        if name in _KEYS:
            result[name] = part
        elif name == "ipam" and isinstance(part, dict):
            result[name] = _cni(part)
        elif name == "runtimeConfig" and isinstance(part, dict):
            result[name] = {key: value if key in _CAPABILITIES else hidden(value) for key, value in part.items()}
        else:
            result[name] = hidden(part)
    return result

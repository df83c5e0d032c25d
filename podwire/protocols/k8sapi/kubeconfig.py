"""Kubeconfig files and what a pod finds in its own: how to reach an API server, and who to be there. Pure.

What a kubeconfig may ask for and this client does not do is refused by name, never left out silently.
"""

import base64
import binascii
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from podwire.protocols.k8sapi.codec import BadBody
from podwire.protocols.k8sapi.exec_credential import (
    CLUSTER_EXTENSION,
    V1BETA1,
    VERSIONS,
    ExecPlugin,
    InteractiveMode,
)
from podwire.protocols.k8sapi.oidc import OidcProvider
from podwire.protocols.k8sapi.yamls import load_all

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds its token, its namespace and the cluster's CA."""
OIDC = "oidc"


class BadKubeconfig(ValueError):
    """Names the file, the field and what is wrong with it."""

    def __init__(self, file: str, where: str, why: str) -> None:
        super().__init__(f"{file}: {where}: {why}" if where else f"{file}: {why}")


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key: the text itself, or the file to read it from. Neither: none."""

    text: str = field(default="", repr=False)
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.file)


NO_PEM = Pem()


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """The user to act as; an empty one is nobody else."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """Returns the headers of a request; a name may be there several times."""
        if not self.user:
            return []
        uid = [("Impersonate-Uid", self.uid)] if self.uid else []
        groups = [("Impersonate-Group", group) for group in self.groups]
        extra = [(f"Impersonate-Extra-{_escaped(key)}", value) for key, values in self.extra for value in values]
        return [("Impersonate-User", self.user), *uid, *groups, *extra]


NOBODY_ELSE = Impersonation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API server and an identity."""

    server: str
    namespace: str = "default"
    ca: Pem = NO_PEM
    """Empty: the system's CAs."""
    certificate: Pem = NO_PEM
    key: Pem = NO_PEM
    token: str = field(default="", repr=False)
    token_file: str = ""
    """Read anew whenever it changes; wins over `token`."""
    username: str = ""
    """Of basic authentication, which an authenticating proxy may want."""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    """Prints the credentials; only without a certificate, a token and a user name."""
    oidc: OidcProvider | None = None
    impersonate: Impersonation = NOBODY_ELSE
    verify: bool = True
    server_name: str = ""
    """The name that the server's certificate must have, when it is not the host of `server`."""
    proxy: str = field(default="", repr=False)
    """The URL of a proxy, which may contain its password; empty: none."""
    files: tuple[str, ...] = field(default=(), compare=False)
    """The kubeconfigs; read anew whenever they change. Empty: there are none."""
    context: str = field(default="", compare=False)
    """The context of the kubeconfig; empty: its current one."""

    def cluster_info(self, ca: str) -> dict[str, Any]:
        """Returns the cluster as a credential plugin sees it; `ca` is the PEM text of the CAs."""
        given = {
            "tls-server-name": self.server_name,
            "insecure-skip-tls-verify": not self.verify,
            "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
            "proxy-url": self.proxy,
        }
        return {"server": self.server, **{name: value for name, value in given.items() if value}}


def parse(text: str, *, file: str, context: str = "") -> Access:
    """The access that a context of a kubeconfig describes, by default its current one. Raises BadKubeconfig."""
    return merge([(file, text)], context=context)


def merge(texts: Sequence[tuple[str, str]], *, context: str = "") -> Access:
    """Returns the access of a context of several kubeconfigs, given as path and text. Raises BadKubeconfig.

    As upstream merges them: the first file that has an entry of a name, or a current context, wins, and the paths in
    an entry are relative to the folder of its own file.
    """
    config = _Config([(file, _document(file, text)) for file, text in texts])
    chosen = config.entry("contexts", "context", context or config.current_context())
    cluster = config.entry("clusters", "cluster", chosen.text("cluster", required=True))
    user_name = chosen.text("user")
    user = config.entry("users", "user", user_name) if user_name else _Entry(chosen.file, "", {})
    server = cluster.text("server", required=True)
    if not server.startswith(("http://", "https://")):
        raise cluster.wrong("server", f"{server!r} is not an http or https URL")
    certificate, token = user.pem("client-certificate"), user.text("token")
    token_file, username, password = user.path("tokenFile"), user.text("username"), user.text("password")
    basic = bool(username or password)
    if basic and (token or token_file):
        raise user.wrong("username", "more than one authentication method found; found [token basicAuth]")
    plugin, oidc = _plugin(user, cluster), _oidc(user, user_name)
    if plugin is not None and oidc is not None:
        raise user.wrong("auth-provider", "cannot be provided in combination with an exec plugin")
    fixed = basic or bool(token or token_file)
    return Access(
        server=server.rstrip("/"),
        namespace=chosen.text("namespace") or "default",
        ca=cluster.pem("certificate-authority"),
        certificate=certificate,
        key=user.pem("client-key"),
        token=token,
        token_file=token_file,
        username=username,
        password=password,
        plugin=None if fixed or certificate else plugin,
        oidc=None if fixed else oidc,
        impersonate=_impersonation(user),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
        proxy=_proxy(cluster),
        files=tuple(file for file, _ in texts),
        context=context,
    )


def _document(file: str, text: str) -> Mapping[str, Any]:
    try:
        documents = load_all(text)
    except BadBody as error:
        raise BadKubeconfig(file, "", str(error)) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise BadKubeconfig(file, "", "expected one kubeconfig")
    document: Mapping[str, Any] = documents[0]
    return document


def _plugin(user: "_Entry", cluster: "_Entry") -> ExecPlugin | None:
    exec_ = user.below("exec")
    if exec_ is None:
        return None
    api_version = exec_.text("apiVersion", required=True)
    if api_version not in VERSIONS:
        raise exec_.wrong("apiVersion", f"invalid apiVersion {api_version!r}, must be {' or '.join(VERSIONS)}")
    mode = exec_.text("interactiveMode") or (InteractiveMode.IF_AVAILABLE if api_version == V1BETA1 else "")
    if not mode:
        raise exec_.wrong("interactiveMode", "must be specified to use exec authentication plugin")
    if mode not in list(InteractiveMode):
        raise exec_.wrong("interactiveMode", f"invalid interactiveMode {mode!r}, must be Never, IfAvailable or Always")
    command = exec_.text("command", required=True)
    return ExecPlugin(
        command=exec_.path("command") if "/" in command else command,
        api_version=api_version,
        args=exec_.texts("args"),
        env=tuple((variable.text("name", required=True), variable.text("value")) for variable in exec_.entries("env")),
        interactive_mode=InteractiveMode(mode),
        provide_cluster_info=exec_.flag("provideClusterInfo"),
        cluster_config=next(
            (
                msgspec.json.encode(extension.table.get("extension"))
                for extension in cluster.entries("extensions")
                if extension.text("name") == CLUSTER_EXTENSION
            ),
            b"",
        ),
        install_hint=exec_.text("installHint"),
    )


def _oidc(user: "_Entry", name: str) -> OidcProvider | None:
    provider = user.below("auth-provider")
    if provider is None:
        return None
    kind = provider.text("name", required=True)
    if kind != OIDC:
        raise provider.wrong("name", f"no Auth Provider found for name {kind!r}: use a credential plugin (exec)")
    config = provider.below("config") or _Entry(user.file, f"{provider.where}.config", {})
    ca = config.pem("idp-certificate-authority")
    return OidcProvider(
        issuer=config.text("idp-issuer-url", required=True),
        client_id=config.text("client-id", required=True),
        client_secret=config.text("client-secret"),
        id_token=config.text("id-token"),
        refresh_token=config.text("refresh-token"),
        ca_text=ca.text,
        ca_file=ca.file,
        file=user.file,
        user=name,
    )


def _impersonation(user: "_Entry") -> Impersonation:
    extra = user.below("as-user-extra")
    found = Impersonation(
        user=user.line("as"),
        uid=user.line("as-uid"),
        groups=user.lines("as-groups"),
        extra=tuple((key, extra.lines(key)) for key in extra.table) if extra is not None else (),
    )
    if not found.user and found != NOBODY_ELSE:
        raise user.wrong("as", "requesting uid, groups or user-extra without impersonating a user")
    return found


def _proxy(cluster: "_Entry") -> str:
    url = cluster.text("proxy-url")
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise cluster.wrong("proxy-url", "is not a URL") from None
    if parts.scheme in ("socks5", "socks5h"):
        raise cluster.wrong("proxy-url", "SOCKS proxies are not supported by podwire, only http and https")
    if parts.scheme not in ("http", "https"):
        raise cluster.wrong("proxy-url", f"unsupported scheme {parts.scheme!r}, must be http or https")
    if not usable:
        raise cluster.wrong("proxy-url", "names no host")
    return url


class _Config:
    """Kubeconfigs, the first of which wins, that say where they are wrong."""

    def __init__(self, documents: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self._roots = [_Entry(file, "", document) for file, document in documents]
        self._names = ":".join(file for file, _ in documents)

    def current_context(self) -> str:
        for root in self._roots:
            if name := root.text("current-context"):
                return name
        raise BadKubeconfig(self._names, "current-context", "is not set")

    def entry(self, group: str, kind: str, name: str) -> "_Entry":
        for root in self._roots:
            named = [entry for entry in root.entries(group) if entry.table.get("name") == name]
            if len(named) > 1:
                raise root.wrong(group, f"duplicate name {name!r} in list")
            if named:
                where = f"{group}[{name}].{kind}"
                return named[0].below(kind, where) or _Entry(root.file, where, {})
        raise BadKubeconfig(self._names, group, f"{kind} {name!r} not found")


class _Entry:
    """A table of a kubeconfig, and its place there."""

    def __init__(self, file: str, where: str, table: Mapping[str, Any]) -> None:
        self.file = file
        self.where = where
        self.table = table

    def wrong(self, name: str, why: str) -> BadKubeconfig:
        return BadKubeconfig(self.file, self._at(name), why)

    def _at(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def text(self, name: str, *, required: bool = False) -> str:
        value = self.table.get(name) or ""
        if not isinstance(value, str):
            raise self.wrong(name, f"expected a string, got {type(value).__name__}")
        if required and not value:
            raise self.wrong(name, "is missing")
        return value

    def line(self, name: str) -> str:
        """A text that goes into a header."""
        return self._one_line(name, self.text(name))

    def flag(self, name: str) -> bool:
        value = self.table.get(name) or False
        if not isinstance(value, bool):
            raise self.wrong(name, f"expected true or false, got {type(value).__name__}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.table.get(name) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self.wrong(name, "expected a list of strings")
        return tuple(values)

    def lines(self, name: str) -> tuple[str, ...]:
        return tuple(self._one_line(name, value) for value in self.texts(name))

    def _one_line(self, name: str, value: str) -> str:
        if any(character in value for character in "\r\n\0"):
            raise self.wrong(name, "must not contain line breaks")
        return value

    def below(self, name: str, where: str = "") -> "_Entry | None":
        """Returns the table of this name; None without one."""
        value = self.table.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise BadKubeconfig(self.file, where or self._at(name), "expected an object")
        return _Entry(self.file, where or self._at(name), value)

    def entries(self, name: str) -> "list[_Entry]":
        values = self.table.get(name) or []
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            raise self.wrong(name, "expected a list of objects")
        return [_Entry(self.file, f"{self._at(name)}[{number}]", value) for number, value in enumerate(values)]

    def pem(self, name: str) -> Pem:
        """`NAME-data` holds the text in base64 and wins over `NAME`, a file."""
        data = self.text(f"{name}-data")
        if not data:
            return Pem(file=self.path(name))
        try:
            return Pem(text=base64.b64decode(data, validate=True).decode("ascii"))
        except (binascii.Error, UnicodeDecodeError) as error:
            raise self.wrong(f"{name}-data", "is not base64-encoded PEM") from error

    def path(self, name: str) -> str:
        """Relative to the folder of its kubeconfig."""
        path = self.text(name)
        return posixpath.join(posixpath.dirname(self.file), path) if path else ""


def in_cluster(environ: Mapping[str, str], namespace: str, *, folder: str = SERVICE_ACCOUNT) -> Access:
    """Returns the access of a pod by its environment and mounted service account; `namespace` is the content of that
    file."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        missing = "KUBERNETES_SERVICE_PORT" if host else "KUBERNETES_SERVICE_HOST"
        raise BadKubeconfig("environment", missing, "is not set: not running in a pod, so pass a kubeconfig")
    shown = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{shown}:{port}",
        namespace=namespace.strip() or "default",
        ca=Pem(file=f"{folder}/ca.crt"),
        token_file=f"{folder}/token",
    )


def write_kubeconfig(access: Access, *, name: str = "podwire", user: str = "admin") -> str:
    """A kubeconfig with one context that describes this access; JSON, which is YAML too."""
    cluster = {
        "server": access.server,
        **_given("certificate-authority", access.ca),
        **({} if access.verify else {"insecure-skip-tls-verify": True}),
        **_present({"tls-server-name": access.server_name, "proxy-url": access.proxy}),
    }
    if access.plugin is not None and access.plugin.cluster_config:
        extension = {"name": CLUSTER_EXTENSION, "extension": msgspec.Raw(access.plugin.cluster_config)}
        cluster["extensions"] = [extension]
    act_as = access.impersonate
    identity = {
        **_given("client-certificate", access.certificate),
        **_given("client-key", access.key),
        **_present(
            {
                "token": access.token,
                "tokenFile": access.token_file,
                "username": access.username,
                "password": access.password,
                "exec": _exec_table(access.plugin) if access.plugin else None,
                "auth-provider": _oidc_table(access.oidc) if access.oidc else None,
                "as": act_as.user,
                "as-uid": act_as.uid,
                "as-groups": act_as.groups,
                "as-user-extra": dict(act_as.extra),
            }
        ),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": user, "namespace": access.namespace}},
        ],
        "current-context": name,
        "preferences": {},
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"


def _given(name: str, pem: Pem) -> dict[str, str]:
    if pem.text:
        return {f"{name}-data": base64.b64encode(pem.text.encode()).decode()}
    return {name: pem.file} if pem.file else {}


def _present(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value}


def _exec_table(plugin: ExecPlugin) -> dict[str, Any]:
    return {
        "apiVersion": plugin.api_version,
        "command": plugin.command,
        "interactiveMode": plugin.interactive_mode.value,
        **_present(
            {
                "args": plugin.args,
                "env": [{"name": name, "value": value} for name, value in plugin.env],
                "provideClusterInfo": plugin.provide_cluster_info,
                "installHint": plugin.install_hint,
            }
        ),
    }


def _oidc_table(provider: OidcProvider) -> dict[str, Any]:
    ca = Pem(provider.ca_text, provider.ca_file)
    tokens = {
        "idp-issuer-url": provider.issuer,
        "client-id": provider.client_id,
        "client-secret": provider.client_secret,
        "id-token": provider.id_token,
        "refresh-token": provider.refresh_token,
    }
    return {"name": OIDC, "config": {**_present(tokens), **_given("idp-certificate-authority", ca)}}


def _escaped(key: str) -> str:
    """Returns a key as a part of a header's name: bytes that may not be there, and percent signs, are escaped."""
    return "".join(chr(byte) if byte in _HEADER_BYTES else f"%{byte:02X}" for byte in key.encode())


_HEADER_BYTES = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

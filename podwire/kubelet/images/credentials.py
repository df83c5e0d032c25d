"""Credentials for pulling an image: those of a pod's imagePullSecrets that match its registry. Pure."""

import base64
import binascii
import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from podwire.kubelet.images.names import HUB, HUB_ALIAS
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.watch import Object

_JSON, _OLD = "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"


class BadSecret(ValueError):
    """A Secret without valid credentials."""


def credentials(repository: str, secrets: Sequence[Object]) -> list[pb.AuthConfig]:
    """The most specific first: credentials of a path before those of its registry."""
    logins = [(_scope(key), login) for secret in secrets for key, login in _logins(secret)]
    matching = [pair for pair in logins if _matches(pair[0], repository)]
    if not matching and repository.partition("/")[0] == HUB:
        matching = [pair for pair in logins if pair[0] == HUB_ALIAS]
    return [_auth(login) for _, login in sorted(matching, key=lambda pair: pair[0], reverse=True)]


def _logins(secret: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kind = secret.get("type", "")
    key = {_JSON: ".dockerconfigjson", _OLD: ".dockercfg"}.get(kind)
    data = (secret.get("data") or {}).get(key)
    if not data:
        return
    try:
        held = msgspec.json.decode(base64.b64decode(data))
        logins = held.get("auths", {}) if kind == _JSON else held
        yield from ((scope, dict(login)) for scope, login in logins.items())
    except (ValueError, TypeError, AttributeError) as error:
        raise BadSecret(f"secret {secret['metadata']['name']}: {key} is not a list of logins") from error


def _scope(key: str) -> str:
    """HOST[:PORT][/PATH]; the API version that Docker appends to the host is ignored."""
    url = urlsplit(key if key.startswith(("http://", "https://")) else f"https://{key}")
    path = url.path[3:] if url.path.startswith(("/v1/", "/v2/")) else url.path
    return url.netloc + ("" if path == "/" else path)


def _matches(scope: str, repository: str) -> bool:
    """Hosts are compared label by label, so that * matches within one; paths by prefix."""
    (host, _, path), (wanted_host, _, wanted) = scope.partition("/"), repository.partition("/")
    (name, _, port), (wanted_name, _, wanted_port) = host.partition(":"), wanted_host.partition(":")
    parts, wanted_parts = name.split("."), wanted_name.split(".")
    return (
        port == wanted_port
        and len(parts) == len(wanted_parts)
        and all(map(fnmatch.fnmatchcase, wanted_parts, parts))
        and wanted.startswith(path)
    )


def _auth(login: Mapping[str, Any]) -> pb.AuthConfig:
    if not login.get("auth"):
        return pb.AuthConfig(username=login.get("username", ""), password=login.get("password", ""))
    try:
        name, colon, password = base64.b64decode(login["auth"]).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise BadSecret("auth: must be base64") from error
    if not colon:
        raise BadSecret("auth: must be formatted as base64(username:password)")
    return pb.AuthConfig(username=name, password=password.rstrip("\0"))

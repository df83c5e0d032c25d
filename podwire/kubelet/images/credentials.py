"""Who may pull an image: the logins of a pod's imagePullSecrets that are meant for the image's registry. Pure."""

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
    """A secret that should have logins and has not."""


def credentials(repository: str, secrets: Sequence[Object]) -> list[pb.AuthConfig]:
    """The closest first: a login for a path before one for its whole registry."""
    found = [(_place(where), login) for secret in secrets for where, login in _logins(secret)]
    fitting = [each for each in found if _fits(each[0], repository)]
    if not fitting and repository.partition("/")[0] == HUB:
        fitting = [each for each in found if each[0] == HUB_ALIAS]
    return [_auth(login) for _, login in sorted(fitting, key=lambda each: each[0], reverse=True)]


def _logins(secret: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kind = secret.get("type", "")
    key = {_JSON: ".dockerconfigjson", _OLD: ".dockercfg"}.get(kind)
    data = (secret.get("data") or {}).get(key)
    if not data:
        return
    try:
        held = msgspec.json.decode(base64.b64decode(data))
        logins = held.get("auths", {}) if kind == _JSON else held
        yield from ((where, dict(login)) for where, login in logins.items())
    except (ValueError, TypeError, AttributeError) as error:
        raise BadSecret(f"secret {secret['metadata']['name']}: {key} is no list of logins") from error


def _place(where: str) -> str:
    """HOST[:PORT][/PATH]; the version of the API that Docker writes behind its host means nothing here."""
    url = urlsplit(where if where.startswith(("http://", "https://")) else f"https://{where}")
    path = url.path[3:] if url.path.startswith(("/v1/", "/v2/")) else url.path
    return url.netloc + ("" if path == "/" else path)


def _fits(place: str, repository: str) -> bool:
    """Hosts are compared part by part, so that * stays within one; paths by how they begin."""
    (host, _, path), (wanted_host, _, wanted) = place.partition("/"), repository.partition("/")
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
        raise BadSecret("auth: is no login in base64") from error
    if not colon:
        raise BadSecret("auth: must be formatted as base64(username:password)")
    return pb.AuthConfig(username=name, password=password.rstrip("\0"))

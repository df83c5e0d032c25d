"""Credentials for pulling an image: those of a pod's imagePullSecrets that match its registry. Pure."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.kubelet.images.pulled_images import PullSecret
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.distribution import Login, docker_config
from podwire.protocols.k8sapi.watch import Object

_FORMATS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson", docker_config.parse_config),
    "kubernetes.io/dockercfg": (".dockercfg", docker_config.parse_old_config),
}


class BadSecret(ValueError):
    """A Secret without valid credentials."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A login, and the Secret that it is from; None for one of the node."""

    auth: pb.AuthConfig
    secret: PullSecret | None = None


def credentials(repository: str, secrets: Sequence[Object]) -> list[Credential]:
    """The most specific first: credentials of a path before those of its registry. Raises BadSecret."""
    logins = [(scope, (login, secret)) for secret in secrets for scope, login in _logins(secret)]
    result: list[Credential] = []
    for login, secret in docker_config.fitting(repository, logins):
        try:
            (auth,) = auth_configs([docker_config.read_login(login)])
        except docker_config.BadConfig as error:
            raise BadSecret(str(error)) from error
        metadata = secret["metadata"]
        digest = hashlib.sha256(auth.SerializeToString(deterministic=True)).hexdigest()
        source = PullSecret(metadata.get("uid", ""), metadata.get("namespace", ""), metadata["name"], digest)
        result.append(Credential(auth, source))
    return result


def auth_configs(logins: Iterable[Login]) -> list[pb.AuthConfig]:
    """Returns logins as CRI has them."""
    return [
        pb.AuthConfig(
            username=login.username,
            password=login.password,
            identity_token=login.identity_token,
            registry_token=login.registry_token,
        )
        for login in logins
    ]


def _logins(secret: Object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    key, parse = _FORMATS.get(secret.get("type", ""), ("", docker_config.parse_config))
    data = (secret.get("data") or {}).get(key)
    if not data:
        return
    try:
        yield from parse(base64.b64decode(data)).items()
    except ValueError as error:
        raise BadSecret(f"secret {secret['metadata']['name']}: {key} is not a list of logins") from error

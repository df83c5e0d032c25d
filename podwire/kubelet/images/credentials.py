"""Credentials for pulling an image: those of a pod's imagePullSecrets that match its registry. Pure."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.distribution import docker_config
from podwire.protocols.k8sapi.watch import Object

_FORMATS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson", docker_config.parse_config),
    "kubernetes.io/dockercfg": (".dockercfg", docker_config.parse_old_config),
}


class BadSecret(ValueError):
    """A Secret without valid credentials."""


def credentials(repository: str, secrets: Sequence[Object]) -> list[pb.AuthConfig]:
    """The most specific first: credentials of a path before those of its registry. Raises BadSecret."""
    try:
        logins = docker_config.matching(repository, [pair for secret in secrets for pair in _logins(secret)])
    except docker_config.BadConfig as error:
        raise BadSecret(str(error)) from error
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

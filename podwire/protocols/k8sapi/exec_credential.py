"""Credential plugins of a kubeconfig (client.authentication.k8s.io): the request to a program, and its answer. Pure.

No error repeats the answer: it contains secrets.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
V1BETA1 = VERSIONS[1]
EXEC_INFO = "KUBERNETES_EXEC_INFO"
"""The variable in which a plugin finds its request."""
CLUSTER_EXTENSION = f"{GROUP}/exec"
"""The extension of a cluster that is handed to plugins as its configuration."""
MAX_ANSWER = 1 << 20


class InteractiveMode(enum.StrEnum):
    """Whether a plugin may ask the person at the terminal."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


class BadCredential(ValueError):
    """The answer of a plugin cannot be used; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials. Its arguments and variables may be secrets."""

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive_mode: InteractiveMode = InteractiveMode.IF_AVAILABLE
    provide_cluster_info: bool = False
    cluster_config: bytes = field(default=b"", repr=False)
    """JSON of the cluster's extension for plugins; empty: it has none."""
    install_hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """An identity for a while: a token, a client certificate with its key, or both."""

    token: str = field(default="", repr=False)
    certificate: str = ""
    key: str = field(default="", repr=False)
    expires: float | None = None
    """Seconds since the epoch; None: it is used until the server rejects it."""


def exec_info(plugin: ExecPlugin, *, interactive: bool, cluster: Mapping[str, Any] | None = None) -> str:
    """Returns the request: the content of KUBERNETES_EXEC_INFO. `cluster` is for a plugin that wants to know it."""
    spec: dict[str, Any] = {}
    if plugin.provide_cluster_info and cluster is not None:
        config = {"config": msgspec.Raw(plugin.cluster_config)} if plugin.cluster_config else {}
        spec["cluster"] = {**cluster, **config}
    spec["interactive"] = interactive
    return msgspec.json.encode({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}).decode()


class _Status(msgspec.Struct, rename="camel"):
    expiration_timestamp: datetime | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def read_credential(plugin: ExecPlugin, output: bytes) -> Credential:
    """Returns the credentials that a plugin printed. Raises BadCredential."""
    try:
        answer = _decode(output)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BadCredential(f"the output is not an ExecCredential: {error}") from None
    except msgspec.DecodeError:
        raise BadCredential("the output is not JSON") from None
    if (answer.kind, answer.api_version) != ("ExecCredential", plugin.api_version):
        shown = f"{answer.api_version[:100]!r}, kind {answer.kind[:100]!r}"
        raise BadCredential(f"is configured to use API version {plugin.api_version}, plugin returned version {shown}")
    status = answer.status
    if status is None:
        raise BadCredential("didn't return a status field")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise BadCredential("returned only certificate or key, not both")
    if not status.token and not status.client_key_data:
        raise BadCredential("didn't return a token or cert/key pair")
    if any(character in status.token for character in "\r\n\0"):
        raise BadCredential("returned a token with a line break")
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        raise BadCredential("returned an expirationTimestamp without a time zone")
    return Credential(
        token=status.token,
        certificate=status.client_certificate_data,
        key=status.client_key_data,
        expires=expires.timestamp() if expires is not None else None,
    )

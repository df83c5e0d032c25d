"""What a device plugin may register as. Pure."""

import os
from pathlib import Path

from podwire.objects.names import qualified_name
from podwire.protocols.deviceplugin.methods import VERSION
from podwire.protocols.grpc_status import InvalidArgument

SOCKET = "kubelet.sock"
"""The kubelet's own, in the directory that plugins put theirs into."""
MAX_PATH = 107
"""Bytes that the kernel takes for a socket's path."""


def is_extended(name: str) -> bool:
    """A resource that is none of Kubernetes' own, so that somebody else may bring it."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")  # so that a quota can name it


def check_resource(name: str) -> None:
    """InvalidArgument."""
    if not is_extended(name):
        why = "expected DOMAIN/NAME, with a domain that is not Kubernetes' own"
        raise InvalidArgument(f'the ResourceName "{name}" is invalid: {why}')


def check_version(*versions: str) -> None:
    """One of those that a plugin speaks must be ours. InvalidArgument."""
    if VERSION not in versions:
        told = ", ".join(versions)
        raise InvalidArgument(
            f'requested API version "{told}" is not supported by kubelet. Supported version is "{VERSION}"'
        )


def socket_of(endpoint: str, directory: Path) -> Path:
    """The socket that a plugin names by its file name alone. InvalidArgument."""
    if not endpoint or endpoint in (".", "..", SOCKET) or "/" in endpoint or "\0" in endpoint:
        raise InvalidArgument(f'the endpoint "{endpoint}" is invalid: expected the name of a socket in {directory}')
    path = directory / endpoint
    if (size := len(os.fsencode(path))) > MAX_PATH:
        raise InvalidArgument(f'the endpoint "{endpoint}" is invalid: {path} has {size} bytes, and {MAX_PATH} is all')
    return path

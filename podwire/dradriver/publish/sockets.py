"""The driver's sockets. An instance that knows its pod has names of its own, so that two can serve at once.

During a rolling update the new instance and the old one serve side by side; the kubelet calls the one that registered
last.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from podwire.protocols.grpc_methods import Handler, Method

LONGEST = 107
"""Bytes that the kernel accepts for a socket's path."""


class Served(Protocol):
    """A socket that is served."""

    async def close(self) -> None: ...


class SocketServer(Protocol):
    async def serve(self, path: Path, table: Iterable[Method], handlers: Mapping[str, Handler]) -> Served:
        """Serves gRPC methods on a unix socket. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    dra: Path
    registration: Path
    lock: Path
    """The InstanceLock: held by the instance that works for claims."""
    chardev: Path
    chardev_registration: Path
    """The device plugin for character devices."""


def sockets(kubelet: Path, driver: str, pod_uid: str = "") -> Sockets:
    """Returns the paths below the kubelet's directory."""
    plugin, registry = kubelet / "plugins" / driver, kubelet / "plugins_registry"
    suffix = f"-{pod_uid}" if pod_uid else ""
    return Sockets(
        dra=plugin / f"dra{suffix}.sock",
        registration=registry / _registration(registry, driver, pod_uid),
        lock=plugin / "serialize.lock",
        chardev=plugin / f"chardev{suffix}.sock",
        chardev_registration=registry / _registration(registry, f"{driver}-chardev", pod_uid),
    )


def _registration(registry: Path, driver: str, pod_uid: str) -> str:
    """The longest name that the kernel accepts, in the style of kubeletplugin's sockets."""
    if not pod_uid:
        return f"{driver}-reg.sock"
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_digest(pod_uid, 8)}-reg.sock",
        f"dra-{_digest(f'{driver}{chr(0)}{pod_uid}', 16)}-reg.sock",
    )
    return next((name for name in names if len(str(registry / name).encode()) <= LONGEST), names[-1])


def _digest(text: str, size: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:size]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

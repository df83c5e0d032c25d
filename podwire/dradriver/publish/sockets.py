"""Where the driver's sockets are. An instance that knows its pod has names of its own: two can be there at once.

While a driver is updated, the new instance and the old one serve side by side; the kubelet asks the one that came last.
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

LONGEST = 107
"""Bytes that the kernel takes for a socket's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    dra: Path
    registration: Path
    lock: Path
    """Whoever changes something for a claim holds it, whichever instance it is."""
    chardev: Path
    chardev_registration: Path
    """Of the device plugin beside it."""


def sockets(kubelet: Path, driver: str, pod_uid: str = "") -> Sockets:
    """Below the kubelet's directory."""
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
    """The first that the kernel takes, from telling to short; as other drivers name theirs."""
    if not pod_uid:
        return f"{driver}-reg.sock"
    both = f"{driver}\x00{pod_uid}"
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_short(pod_uid, 8)}-reg.sock",
        f"dra-{_short(both, 16)}-reg.sock",
    )
    return next((each for each in names if len(str(registry / each).encode()) <= LONGEST), names[-1])


def _short(text: str, size: int) -> str:
    digest = hashlib.sha256(text.encode()).digest()[:size]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

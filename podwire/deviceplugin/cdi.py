"""CDI files of devices that are out: one file each, written before the kubelet learns the device's CDI name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from podwire.deviceplugin.config import DOMAIN
from podwire.deviceplugin.devices import Handed, cdi_kind
from podwire.durable.files import remove_durably, write_durably
from podwire.failpoints import declare, failpoint

WRITTEN = declare("device-plugin.cdi-written", "a CDI file describes a device, and the kubelet has no answer yet")

_FOR_FILES, _FOR_LINKS = "0.5.0", "1.1.0"
"""The oldest versions that have what is used, so that more runtimes accept them."""


def cdi_name(pool: str, device: str) -> str:
    return f"{cdi_kind(pool)}={device}"


def spec(pool: str, device: str, handed: Handed) -> dict[str, Any]:
    """A file's content. A link keeps its name in the container."""
    edits: dict[str, Any] = {}
    if handed.files:
        edits["deviceNodes"] = [{"path": file, "permissions": handed.permissions} for file in handed.files]
    if handed.link:
        edits["netDevices"] = [{"hostInterfaceName": handed.link, "name": handed.link}]
    return {
        "cdiVersion": _FOR_LINKS if handed.link else _FOR_FILES,
        "kind": cdi_kind(pool),
        "devices": [{"name": device, "containerEdits": edits}],
    }


class CdiFiles:
    """The files of one pool."""

    def __init__(self, directory: Path, pool: str) -> None:
        self._directory, self._pool = directory, pool

    def write(self, device: str, handed: Handed) -> None:
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = json.dumps(spec(self._pool, device, handed), indent=1)
        write_durably(self._path(device), content.encode(), 0o644)
        failpoint(WRITTEN)

    def keep_only(self, out: Mapping[str, Handed]) -> None:
        """Writes the missing files of devices that are out, and removes all others."""
        present = self.devices()
        for device in present - set(out):
            remove_durably(self._path(device))
        for device in set(out) - present:
            self.write(device, out[device])

    def devices(self) -> set[str]:
        head = f"{DOMAIN}-{self._pool}@"
        found = self._directory.glob(f"{head}*.json")
        return {unquote(file.name.removeprefix(head).removesuffix(".json")) for file in found}

    def _path(self, device: str) -> Path:
        return self._directory / f"{DOMAIN}-{self._pool}@{quote(device, safe='')}.json"

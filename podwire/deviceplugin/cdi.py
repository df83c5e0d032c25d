"""CDI files of devices that are out: one file each, written before the kubelet learns the device's CDI name.

A container that restarts, or a later one of the pod, gets the same CDI device, and kubelets do not call Allocate again.
The link is in the pod by then, and a runtime that is asked to move it fails. So the file follows the link:

| link | the file has |
|---|---|
| on the host | `netDevices`: the runtime moves it |
| elsewhere | a hook, which fails unless the link is in the container's network namespace |
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from podwire.deviceplugin.config import DOMAIN
from podwire.deviceplugin.devices import Handed, cdi_kind
from podwire.durable.files import remove_durably, write_durably
from podwire.failpoints import declare, failpoint

WRITTEN = declare("device-plugin.cdi-written", "a CDI file describes a device, and the kubelet has no answer yet")

HOOK_NAME = "podwire-device-in-pod"
_HOOK_SECONDS = 10
_FOR_FILES, _FOR_LINKS = "0.5.0", "1.1.0"
"""The oldest versions that have what is used, so that more runtimes accept them."""


def cdi_name(pool: str, device: str) -> str:
    return f"{cdi_kind(pool)}={device}"


def spec(pool: str, device: str, handed: Handed, hook: Sequence[str]) -> dict[str, Any]:
    """A file's content. A link keeps its name in the container. `hook` is the beginning of the hook's command line."""
    edits: dict[str, Any] = {}
    if handed.files:
        edits["deviceNodes"] = [{"path": file, "permissions": handed.permissions} for file in handed.files]
    if handed.link and not handed.on_host:
        arguments = [*hook, "has-link", handed.link]
        check = {"hookName": "createRuntime", "path": hook[0], "args": arguments, "timeout": _HOOK_SECONDS}
        edits["hooks"] = [check]
    elif handed.link:
        edits["netDevices"] = [{"hostInterfaceName": handed.link, "name": handed.link}]
    return {
        "cdiVersion": _FOR_LINKS if handed.link else _FOR_FILES,
        "kind": cdi_kind(pool),
        "devices": [{"name": device, "containerEdits": edits}],
    }


class CdiFiles:
    """The files of one pool."""

    def __init__(self, directory: Path, pool: str, hook: Sequence[str]) -> None:
        self._directory, self._pool, self._hook = directory, pool, hook
        self._written: dict[str, bytes] = {}

    def write(self, device: str, handed: Handed) -> None:
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        content = self._content(device, handed)
        write_durably(self._path(device), content, 0o644)
        self._written[device] = content
        failpoint(WRITTEN)

    def keep_only(self, out: Mapping[str, Handed]) -> None:
        """Writes the files of devices that are out where they are missing or outdated, and removes all others."""
        present = self.devices()
        for device in present - set(out):
            remove_durably(self._path(device))
            self._written.pop(device, None)
        for device, handed in out.items():
            if device not in present or self._written.get(device) != self._content(device, handed):
                self.write(device, handed)

    def _content(self, device: str, handed: Handed) -> bytes:
        return json.dumps(spec(self._pool, device, handed, self._hook), indent=1).encode()

    def devices(self) -> set[str]:
        head = f"{DOMAIN}-{self._pool}@"
        found = self._directory.glob(f"{head}*.json")
        return {unquote(file.name.removeprefix(head).removesuffix(".json")) for file in found}

    def _path(self, device: str) -> Path:
        return self._directory / f"{DOMAIN}-{self._pool}@{quote(device, safe='')}.json"

"""Device files: the same for each of a number of holders, so nothing has to be restored."""

import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from podwire.deviceplugin.config import Files
from podwire.deviceplugin.config import Pool as Settings
from podwire.deviceplugin.devices import Device, Handed
from podwire.deviceplugin.host_view import View
from podwire.deviceplugin.ports import Unusable
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded


class FilePool:
    def __init__(self, settings: Settings, source: Files) -> None:
        self.settings = settings
        self._source = source
        self._ids = tuple(f"{settings.name}-{number}" for number in range(source.count))
        self._known = frozenset(self._ids)
        self._devices: tuple[Device, ...] = ()
        self._why: str | None = None

    def learn(self, events: Sequence[LinkEvent | NamespaceEnded], *, lost: bool) -> None:
        """Files are not links."""

    def look(self, _view: View, _held: Collection[str] | None) -> None:
        why = next(filter(None, map(trouble, self._source.paths)), "")
        if why != self._why:  # ten thousand devices are built again only after a change
            self._why = why
            self._devices = tuple(Device(device, why) for device in self._ids)

    def asked(self) -> None:
        """Files are shared."""

    def confirm(self, held: Collection[str]) -> None:
        """Files have no holder."""

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def hand(self, ids: Sequence[str]) -> tuple[Handed, ...]:
        for device in ids:
            if device not in self._known:
                raise Unusable(f"{device}: is not a device of the pool {self.settings.name}")
            if self._why:
                raise Unusable(f"{device}: {self._why}")
        return tuple(self._handed(device) for device in ids)

    def described(self, device: str) -> Handed | None:
        return self._handed(device) if device in self._known else None

    def waits(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to remove."""

    def _handed(self, device: str) -> Handed:
        paths = self._source.paths
        return Handed(
            value=",".join(paths),
            info={"id": device, "paths": list(paths)},
            files=paths,
            permissions=self._source.permissions,
        )


def trouble(path: str) -> str:
    """Why a path is not a device file; empty when it is one."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        return f"{path}: {error.strerror}"
    return "" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else f"{path} is not a device file"

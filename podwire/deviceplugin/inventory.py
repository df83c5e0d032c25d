"""All pools of a node, and who has what of them. Synchronous: called by one worker thread at a time."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from podwire.deviceplugin.cdi import CdiFiles
from podwire.deviceplugin.config import Config, Files, Interfaces, Make
from podwire.deviceplugin.config import Pool as Settings
from podwire.deviceplugin.devices import Device, Handed, reasons
from podwire.deviceplugin.file_pool import FilePool
from podwire.deviceplugin.host_view import Looker, View
from podwire.deviceplugin.interface_pool import InterfacePool
from podwire.deviceplugin.made_links import sweep_taps
from podwire.deviceplugin.made_pool import MadePool
from podwire.deviceplugin.ports import Pool
from podwire.deviceplugin.records import Records
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.sysfs import Sysfs

_log = logging.getLogger("podwire.deviceplugin")
_SAID = 20
"""Devices that one change is logged of; the others are counted."""


class Stock:
    """Opened where the links are: in the calling thread's network namespace."""

    def __init__(self, config: Config, *, state: Path, sysfs: Path, cdi: Path) -> None:
        self._netlink = Netlink()
        self._claims: dict[int, str] = {}
        self._sysfs = Sysfs(sysfs)
        self._state = state / "pools"
        self._pools: dict[str, Pool] = {each.name: self._made(each) for each in config.pools}
        asking = any(isinstance(each.source, Interfaces) for each in config.pools)
        self._looker = Looker(self._netlink, self._sysfs if asking else None)
        self._cdi = {each.name: CdiFiles(cdi, each.name) for each in config.pools if each.cdi}
        self._held: dict[str, set[str]] | None = None
        self._allocated: dict[tuple[str, str], int] = {}
        self._time = 0
        self._told: dict[str, dict[str, str]] = {}
        sweep_taps(KernelLinks(self._netlink))

    def _made(self, pool: Settings) -> Pool:
        match pool.source:
            case Interfaces():
                records = Records(self._state, pool.name)
                return InterfacePool(pool, pool.source, records, self._netlink, self._claims.setdefault)
            case Make():
                return MadePool(pool, pool.source, Records(self._state, pool.name), self._sysfs, self._netlink)
            case Files():
                return FilePool(pool, pool.source)

    def look(self, told: Sequence[LinkEvent | NamespaceEnded] = (), *, lost: bool = False) -> None:
        """Bring all pools in line with the host. Raises LinuxError."""
        self.learn(told, lost=lost)
        self.settle(self.view())

    def learn(self, told: Sequence[LinkEvent | NamespaceEnded], *, lost: bool) -> None:
        """What the kernel told meanwhile, and whether it told more than was heard. A view is taken after this."""
        for pool in self._pools.values():
            pool.learn(told, lost=lost)

    def view(self) -> View:
        """The host as it is. Takes long where links are many, and nobody's turn: devices are handed out meanwhile.
        One view at a time. Raises LinuxError."""
        return self._looker.look()

    def settle(self, view: View) -> None:
        """Bring all pools in line with it. Raises LinuxError."""
        for index in [each for each in self._claims if each not in view.links]:
            del self._claims[index]
        for name, pool in self._pools.items():
            pool.look(view, None if self._held is None else self._held.get(name, set()))
        self._tell()

    def _tell(self) -> None:
        """Say what changed in the devices' health, in the log."""
        for name, pool in self._pools.items():
            now, before = reasons(pool.devices()), self._told.get(name, {})
            changed = [each for each in sorted(now.keys() | before.keys()) if now.get(each) != before.get(each)]
            for device in changed[:_SAID]:
                facts = {"pool": name, "device": device}
                if why := now.get(device):
                    _log.warning("device unhealthy", extra=facts | {"why": why})
                else:
                    _log.info("device healthy", extra=facts)
            if len(changed) > _SAID:
                _log.warning("and more devices", extra={"pool": name, "devices": len(changed) - _SAID})
            self._told[name] = now

    def devices(self, pool: str) -> tuple[Device, ...]:
        return self._pools[pool].devices()

    def allocate(self, pool: str, ids: Sequence[str]) -> tuple[Handed, ...]:
        """What containers get; durable records and CDI files are there before this returns. Raises Unusable."""
        handed = self._pools[pool].hand(ids)
        if pool in self._cdi:
            for device, each in zip(ids, handed, strict=True):
                self._cdi[pool].write(device, each)
        self._time += 1
        for device in ids:
            self._allocated[pool, device] = self._time
            if self._held is not None:
                self._held.setdefault(pool, set()).add(device)
        return handed

    def asks(self) -> int:
        """Told to `heard` later: what was allocated after this is not in an answer to a question asked now."""
        for pool in self._pools.values():
            pool.asked()
        return self._time

    def heard(self, held: Mapping[str, Iterable[str]], asked: int) -> bool:
        """What pods have, by the resources' names; whether that is something new, so that a look is due."""
        before = self._held
        late = {key for key, time in self._allocated.items() if time > asked}
        self._allocated = {key: self._allocated[key] for key in late}
        self._held = {
            name: set(held.get(pool.settings.resource, ())) | {device for owner, device in late if owner == name}
            for name, pool in self._pools.items()
        }
        for name, pool in self._pools.items():
            pool.confirm(self._held[name])
        for name, files in self._cdi.items():
            described = {each: self._pools[name].described(each) for each in self._held[name]}
            files.settle({device: each for device, each in described.items() if each is not None})
        return self._held != before

    @property
    def waits(self) -> bool:
        """Whether it must be learned soon what pods have: something is out, or may be free again."""
        return any(each.waits() for each in self._pools.values()) or any(each.devices() for each in self._cdi.values())

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._netlink.close()

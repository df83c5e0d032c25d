"""All pools of a node, and which devices pods have. Synchronous: called by one worker thread at a time."""

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
from podwire.deviceplugin.ports import Incarnation, Pool
from podwire.deviceplugin.records import PoolRecords, count_damaged
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.sysfs import Sysfs

_log = logging.getLogger("podwire.deviceplugin")
KUBELET_READS_PODS = 30.0
"""Seconds after its start in which a kubelet may not report all pods yet."""
_MAX_LOGGED = 20
"""Devices whose change of health is logged at once; the others are counted."""


class Inventory:
    """Opened in the calling thread's network namespace, which has the links."""

    def __init__(self, config: Config, *, state: Path, sysfs: Path, cdi: Path, hook: Sequence[str] = ()) -> None:
        """`hook` is the beginning of the command line of hooks in CDI files."""
        self._host = NamespaceHandle()
        self._netlink = self._host.netlink
        self._claims: dict[int, str] = {}
        self._sysfs = Sysfs(sysfs)
        self._state = state / "pools"
        self._pools: dict[str, Pool] = {pool.name: self._made(pool) for pool in config.pools}
        asking = any(isinstance(pool.source, Interfaces) for pool in config.pools)
        self._looker = Looker(self._netlink, self._sysfs if asking else None)
        self._cdi = {pool.name: CdiFiles(cdi, pool.name, hook) for pool in config.pools if pool.cdi}
        self._held: dict[str, set[str]] | None = None
        self._kubelet: tuple[int, int] | None = None
        """The kubelet that answered last."""
        self._unreported: dict[str, set[str]] = {}
        """Devices that pods had before this kubelet started, and that it has not reported yet."""
        self._allocated: dict[tuple[str, str], int] = {}
        self._time = 0
        self._reported: dict[str, dict[str, str]] = {}
        sweep_taps(KernelLinks(self._netlink))

    def _made(self, pool: Settings) -> Pool:
        match pool.source:
            case Interfaces():
                records = PoolRecords(self._state, pool.name)
                return InterfacePool(pool, pool.source, records, self._host, self._claims.setdefault)
            case Make():
                records = PoolRecords(self._state, pool.name)
                return MadePool(pool, pool.source, records, self._sysfs, self._netlink)
            case Files():
                return FilePool(pool, pool.source)

    def damaged(self) -> dict[str, int]:
        """Returns how many damaged records of each pool are in quarantine."""
        return {name: count_damaged(self._state, name) for name in self._pools}

    def look(self, events: Sequence[LinkEvent | NamespaceEnded] = (), *, lost: bool = False) -> None:
        """Reconciles all pools with the host. Raises LinuxError."""
        self.learn(events, lost=lost)
        self.reconcile(self.view())

    def learn(self, events: Sequence[LinkEvent | NamespaceEnded], *, lost: bool) -> None:
        """Takes the events since the last look, and whether some were lost. A view is taken after this."""
        for pool in self._pools.values():
            pool.learn(events, lost=lost)

    def view(self) -> View:
        """Reads the host. Slow with many links, so it runs outside of the lock: devices are handed out meanwhile. One
        view at a time. Raises LinuxError."""
        return self._looker.look()

    def reconcile(self, view: View) -> None:
        """Reconciles all pools with a view. Raises LinuxError."""
        for index in [ifindex for ifindex in self._claims if ifindex not in view.links]:
            del self._claims[index]
        for name, pool in self._pools.items():
            pool.look(view, None if self._held is None else self._held.get(name, set()))
        self._describe()
        self._log_health()

    def _log_health(self) -> None:
        """Logs changes of the devices' health."""
        for name, pool in self._pools.items():
            now, before = reasons(pool.devices()), self._reported.get(name, {})
            changed = [device for device in sorted(now.keys() | before.keys()) if now.get(device) != before.get(device)]
            for device in changed[:_MAX_LOGGED]:
                facts = {"pool": name, "device": device}
                if why := now.get(device):
                    _log.warning("device is unhealthy", extra=facts | {"error": why})
                else:
                    _log.info("device is healthy", extra=facts)
            if len(changed) > _MAX_LOGGED:
                _log.warning(
                    "more devices changed their health", extra={"pool": name, "devices": len(changed) - _MAX_LOGGED}
                )
            self._reported[name] = now

    def devices(self, pool: str) -> tuple[Device, ...]:
        return self._pools[pool].devices()

    def allocate(self, pool: str, ids: Sequence[str]) -> tuple[Handed, ...]:
        """Returns what containers get, after records and CDI files are written. Raises Unusable."""
        handed = self._pools[pool].hand(ids)
        if pool in self._cdi:
            for device, description in zip(ids, handed, strict=True):
                self._cdi[pool].write(device, description)
        self._time += 1
        for device in ids:
            self._allocated[pool, device] = self._time
            self._unreported.get(pool, set()).discard(device)
            if self._held is not None:
                self._held.setdefault(pool, set()).add(device)
        return handed

    def asks(self) -> int:
        """Begins a question to the kubelet; returns a time for `held_by_pods`: the answer lacks later allocations."""
        for pool in self._pools.values():
            pool.asked()
        return self._time

    def held_by_pods(self, held: Mapping[str, Iterable[str]], asked: int, kubelet: Incarnation | None = None) -> bool:
        """Takes what pods have, by resource; returns whether that changed, so that a look is due."""
        before = self._held
        reported = {name: set(held.get(pool.settings.resource, ())) for name, pool in self._pools.items()}
        self._remember(reported, kubelet)
        late = {key for key, time in self._allocated.items() if time > asked}
        self._allocated = {key: self._allocated[key] for key in late}
        self._held = {
            name: devices | self._unreported.get(name, set()) | {device for owner, device in late if owner == name}
            for name, devices in reported.items()
        }
        for name, pool in self._pools.items():
            pool.confirm(self._held[name])
        self._describe()
        return self._held != before

    def _remember(self, reported: Mapping[str, set[str]], kubelet: Incarnation | None) -> None:
        """A kubelet that just started reports no pods at first, although they run: they keep their devices until it
        has reported them once, or has had enough time."""
        if kubelet is None or kubelet.age >= KUBELET_READS_PODS:
            self._kubelet, self._unreported = kubelet and kubelet.identity, {}
            return
        if kubelet.identity != self._kubelet:
            self._kubelet = kubelet.identity
            known = self._held or {name: files.devices() for name, files in self._cdi.items()}
            self._unreported = {name: set(devices) for name, devices in known.items()}
        for name, devices in self._unreported.items():
            devices.difference_update(reported[name])

    def _describe(self) -> None:
        """Brings the CDI files of devices that pods have up to date, and removes the others."""
        if self._held is None:
            return
        for name, files in self._cdi.items():
            described = {device: self._pools[name].described(device) for device in self._held[name]}
            files.keep_only(
                {device: description for device, description in described.items() if description is not None}
            )

    @property
    def waits(self) -> bool:
        """Whether pods must be asked for soon: something is out, or may be free again."""
        return any(pool.waits() for pool in self._pools.values()) or any(
            files.devices() for files in self._cdi.values()
        )

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._host.close()

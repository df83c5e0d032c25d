"""The device plugin: follows the host's links and files, asks which devices pods have, reports them to kubelets."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from podwire.deviceplugin.config import Config, Files
from podwire.deviceplugin.devices import Handed
from podwire.deviceplugin.directory_watch import changes
from podwire.deviceplugin.inventory import Inventory
from podwire.deviceplugin.pool_service import PoolService
from podwire.deviceplugin.ports import Kubelet
from podwire.deviceplugin.registrar import Registrar
from podwire.linux.net import monitor
from podwire.linux.net.link_moves import LinkMoves
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.prometheus import family
from podwire.tasks.backoff import Pauses
from podwire.tasks.uncancelled import to_completion

_log = logging.getLogger("podwire.deviceplugin")
_LINKS = (monitor.LINK, monitor.ADDRESS, monitor.NEXT_HOP, monitor.ANYTHING)
_METRIC = "podwire_device_plugin"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Paths on this machine."""

    state: Path
    device_plugins: Path
    cdi: Path
    sysfs: Path
    hook: Sequence[str] = ()
    """The beginning of the command line of hooks in CDI files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds."""

    quiet: float = 0.02
    """Between two looks at the host: links that flap are not looked at for each of their changes."""
    held: float = 2.0
    """Between two lists of the kubelet's pods while some have devices: nothing reports a pod's end."""
    idle: float = 30.0
    """The same while no pod has a device: a kubelet that was asked too early knew of no pods."""
    retry: float = 1.0
    """Until a look that failed is retried."""
    settled: float = 0.2
    """After a change of links, until the kubelet is asked: it frees devices after their links are back."""
    poll: float = 1.0
    """Between two looks at directories for which the kernel has no inotify watch left."""
    first_registration: float = 0.05
    """The first pause between attempts to register with the kubelet; each later one is twice as long."""
    last_registration: float = 5.0
    """The longest pause between these attempts."""


class Plugin:
    """All pools of one node. Opened, and run, in the network namespace that its links are in."""

    def __init__(self, config: Config, kubelet: Kubelet, paths: Paths, limits: Limits | None = None) -> None:
        self._config, self._kubelet, self._paths, self._limits = config, kubelet, paths, limits or Limits()
        self._inventory = Inventory(config, state=paths.state, sysfs=paths.sysfs, cdi=paths.cdi, hook=paths.hook)
        self._turn = asyncio.Lock()
        self._services = [PoolService(pool, self._allocate) for pool in config.pools]
        self._links_changed, self._directory_changed, self._ask = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._knows = False
        self._trouble = ""
        self._news = False
        """Whether the kernel has reported a change since the last look."""

    async def run(self) -> None:
        """Until cancelled. The kubelet is asked first, then the host is read, then devices are published."""
        with contextlib.closing(monitor.Monitor()) as host, contextlib.closing(LinkMoves()) as travels:
            await self._question()
            await self._look(travels)
            pauses = Pauses(self._limits.first_registration, self._limits.last_registration)
            registrar = Registrar(self._paths.device_plugins, self._services, self._kubelet, pauses)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow_links(host, travels))
                    tasks.create_task(self._follow_files())
                    tasks.create_task(self._follow_pods())
                    tasks.create_task(registrar.run(self._directory_changed))
            finally:
                await self._work(self._inventory.close)

    async def metrics(self) -> str:
        """Returns devices and damaged records of the pools, as Prometheus reads them."""

        def read() -> tuple[dict[str, int], dict[str, list[bool]]]:
            names = [pool.name for pool in self._config.pools]
            health = {name: [device.healthy for device in self._inventory.devices(name)] for name in names}
            return self._inventory.damaged(), health

        damaged, health = await self._work(read)
        devices = [
            ((("pool", pool), ("health", word)), float(sum(one == healthy for one in states)))
            for pool, states in health.items()
            for word, healthy in (("healthy", True), ("unhealthy", False))
        ]
        quarantined = [((("pool", pool),), float(count)) for pool, count in damaged.items()]
        lines = [
            *family(f"{_METRIC}_devices", "Devices by pool and health", devices),
            *family(f"{_METRIC}_damaged_records", "Records that could not be read, in quarantine", quarantined),
        ]
        return "\n".join([*lines, ""])

    async def _work(self, work: Callable[[], T]) -> T:
        """Runs work of the inventory in one thread at a time, to completion."""

        async def alone() -> T:
            async with self._turn:
                return await asyncio.to_thread(work)

        return await to_completion(alone())

    async def _look(self, travels: LinkMoves) -> None:
        events = travels.read()
        lost, travels.lost = travels.lost, False
        try:
            await self._work(lambda: self._inventory.learn(events, lost=lost))
            view = await asyncio.to_thread(self._inventory.view)
            await self._work(lambda: self._inventory.reconcile(view))
            self._trouble = ""
        except OSError as error:
            self._failed(error)
            asyncio.get_running_loop().call_later(self._limits.retry, self._links_changed.set)
        await self._publish()

    def _failed(self, error: OSError) -> None:
        """Logs each error once (a full disk, say): it is retried."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.error("cannot reconcile devices; retrying", extra={"error": str(error)})

    async def _publish(self) -> None:
        devices = await self._work(
            lambda: {pool.name: self._inventory.devices(pool.name) for pool in self._config.pools}
        )
        for service in self._services:
            before = service.prefers
            service.update(devices[service.pool.name])
            if service.prefers != before:
                self._directory_changed.set()  # kubelets read the options only when a plugin registers

    async def _follow_links(self, host: monitor.Monitor, travels: LinkMoves) -> None:
        loop = asyncio.get_running_loop()

        def on_event() -> None:
            self._news = True
            self._links_changed.set()

        def on_host_event() -> None:
            if any(event.what in _LINKS for event in host.read()):
                on_event()

        loop.add_reader(host.fileno(), on_host_event)
        loop.add_reader(travels.fileno(), on_event)
        try:
            while True:
                await self._links_changed.wait()
                self._links_changed.clear()
                news, self._news = self._news, False
                await self._look(travels)
                if news:
                    self._ask.set()
                await asyncio.sleep(self._limits.quiet)
        finally:
            loop.remove_reader(host.fileno())
            loop.remove_reader(travels.fileno())

    async def _follow_files(self) -> None:
        """The kubelet's sockets and ours, and device files."""
        paths = [path for pool in self._config.pools if isinstance(pool.source, Files) for path in pool.source.paths]
        directories = [self._paths.device_plugins, *(Path(path).parent for path in paths)]
        async for _ in changes(directories, self._limits.poll):
            self._directory_changed.set()
            self._ask.set()
            if paths:
                self._links_changed.set()

    async def _follow_pods(self) -> None:
        """Asks after links changed, and every few seconds while a pod has a device: nothing reports a pod's end."""
        while True:
            waits = await self._work(lambda: self._inventory.waits)
            try:
                async with asyncio.timeout(self._limits.held if waits else self._limits.idle):
                    await self._ask.wait()
                await asyncio.sleep(self._limits.settled)
            except TimeoutError:
                self._links_changed.set()  # failed work is retried
            self._ask.clear()
            if await self._question():
                self._links_changed.set()

    async def _question(self) -> bool:
        """Asks what pods have; returns whether that changed."""
        asked = await self._work(self._inventory.asks)
        try:
            held, kubelet = await self._kubelet.held(), self._kubelet.incarnation()
        except RpcError as error:
            if self._knows:
                _log.info("cannot list devices of pods", extra={"error": str(error)})
            self._knows = False
            return False
        self._knows = True
        try:
            return await self._work(lambda: self._inventory.held_by_pods(held, asked, kubelet))
        except OSError as error:
            self._failed(error)
            return False

    async def _allocate(self, pool: str, ids: Sequence[str]) -> Sequence[Handed]:
        handed = await self._work(lambda: self._inventory.allocate(pool, ids))
        self._ask.set()
        return handed

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

QUIET_SECONDS = 0.02
"""Between two looks at the host: links that flap are not looked at for each of their changes."""
OUT_SECONDS = 2.0
"""Between two questions what pods have, while some have devices: nothing tells of a pod's end."""
IDLE_SECONDS = 30.0
"""The same while none has: a kubelet that was asked too early knew of no pods."""
AGAIN_SECONDS = 1.0
"""Until a look that failed is tried again."""
SOON_SECONDS = 0.2
"""How long after a change of links pods are asked for: a kubelet frees devices after links came home."""

_log = logging.getLogger("podwire.deviceplugin")
_LINKS = (monitor.LINK, monitor.ADDRESS, monitor.NEXT_HOP, monitor.ANYTHING)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Paths on this machine."""

    state: Path
    device_plugins: Path
    cdi: Path
    sysfs: Path


class Plugin:
    """All pools of one node. Opened, and run, in the network namespace that its links are in."""

    def __init__(self, config: Config, kubelet: Kubelet, paths: Paths) -> None:
        self._config, self._kubelet, self._paths = config, kubelet, paths
        self._inventory = Inventory(config, state=paths.state, sysfs=paths.sysfs, cdi=paths.cdi)
        self._turn = asyncio.Lock()
        self._services = [PoolService(pool, self._allocate) for pool in config.pools]
        self._links_changed, self._directory_changed, self._ask = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._knows = False
        self._trouble = ""
        self._news = False
        """Whether the kernel told something since the last look."""

    async def run(self) -> None:
        """Until cancelled. The kubelet is asked first, then the host is read, then devices are published."""
        with contextlib.closing(monitor.Monitor()) as host, contextlib.closing(LinkMoves()) as travels:
            await self._question()
            await self._look(travels)
            registrar = Registrar(self._paths.device_plugins, self._services, self._kubelet)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow_links(host, travels))
                    tasks.create_task(self._follow_files())
                    tasks.create_task(self._follow_pods())
                    tasks.create_task(registrar.run(self._directory_changed))
            finally:
                await self._work(self._inventory.close)

    async def _work(self, work: Callable[[], T]) -> T:
        """Runs work of the inventory in one thread at a time, to completion."""

        async def alone() -> T:
            async with self._turn:
                return await asyncio.to_thread(work)

        return await asyncio.shield(asyncio.ensure_future(alone()))

    async def _look(self, travels: LinkMoves) -> None:
        told = travels.read()
        lost, travels.lost = travels.lost, False
        try:
            await self._work(lambda: self._inventory.learn(told, lost=lost))
            view = await asyncio.to_thread(self._inventory.view)
            await self._work(lambda: self._inventory.reconcile(view))
            self._trouble = ""
        except OSError as error:
            self._failed(error)
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._links_changed.set)
        await self._publish()

    def _failed(self, error: OSError) -> None:
        """Logs each error once (a full disk, say): it is retried."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.error("cannot reconcile devices; retrying", extra={"error": str(error)})

    async def _publish(self) -> None:
        told = await self._work(lambda: {pool.name: self._inventory.devices(pool.name) for pool in self._config.pools})
        for service in self._services:
            before = service.prefers
            service.update(told[service.pool.name])
            if service.prefers != before:
                self._directory_changed.set()  # kubelets read the options only when a plugin registers

    async def _follow_links(self, host: monitor.Monitor, travels: LinkMoves) -> None:
        loop = asyncio.get_running_loop()

        def on_event() -> None:
            self._news = True
            self._links_changed.set()

        def on_host_event() -> None:
            if any(each.what in _LINKS for each in host.read()):
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
                await asyncio.sleep(QUIET_SECONDS)
        finally:
            loop.remove_reader(host.fileno())
            loop.remove_reader(travels.fileno())

    async def _follow_files(self) -> None:
        """The kubelet's sockets and ours, and device files."""
        paths = [path for pool in self._config.pools if isinstance(pool.source, Files) for path in pool.source.paths]
        async for _ in changes([self._paths.device_plugins, *(Path(each).parent for each in paths)]):
            self._directory_changed.set()
            self._ask.set()
            if paths:
                self._links_changed.set()

    async def _follow_pods(self) -> None:
        """Asks after links changed, and every few seconds while a pod has a device: nothing reports a pod's end."""
        while True:
            waits = await self._work(lambda: self._inventory.waits)
            try:
                async with asyncio.timeout(OUT_SECONDS if waits else IDLE_SECONDS):
                    await self._ask.wait()
                await asyncio.sleep(SOON_SECONDS)
            except TimeoutError:
                self._links_changed.set()  # failed work is retried
            self._ask.clear()
            if await self._question():
                self._links_changed.set()

    async def _question(self) -> bool:
        """Asks what pods have; returns whether that changed."""
        asked = await self._work(self._inventory.asks)
        try:
            held = await self._kubelet.held()
        except RpcError as error:
            if self._knows:
                _log.info("cannot list devices of pods", extra={"error": str(error)})
            self._knows = False
            return False
        self._knows = True
        try:
            return await self._work(lambda: self._inventory.held_by_pods(held, asked))
        except OSError as error:
            self._failed(error)
            return False

    async def _allocate(self, pool: str, ids: Sequence[str]) -> Sequence[Handed]:
        handed = await self._work(lambda: self._inventory.allocate(pool, ids))
        self._ask.set()
        return handed

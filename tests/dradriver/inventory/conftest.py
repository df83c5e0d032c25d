"""A host in a network namespace of its own, pods in others, and files that stand for its sysfs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from podwire.dradriver.inventory.config import Config
from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.inventory.link_watch import LinkWatch
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysfs import Sysfs
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.transports.clock import SystemClock
from tests.eventually import eventually_async


class Host:
    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self.directory = directory
        self.sysfs = directory / "sys"
        self.namespaces = KernelNamespaces(directory / "ns")
        self.netns = self.made("host")
        self.network = self.opened("host")
        self.links = self.network.links
        self.links.change("lo", up=True)

    def made(self, name: str) -> str:
        path = self.namespaces.create(name).path
        self._stack.callback(self._removed, name)
        return path

    def _removed(self, name: str) -> None:
        if any(namespace.name == name for namespace in self.namespaces.list()):
            self.namespaces.remove(name)

    def opened(self, name: str) -> KernelNetwork:
        return self._stack.enter_context(KernelNetwork(self.namespaces.path(name)))

    def inventory(self, **settings) -> Inventory:
        config = Config(**{"patience": 0.0, **settings})
        found = Inventory(sysfs=Sysfs(self.sysfs), clock=SystemClock(), config=config, netns=self.netns)
        self._stack.callback(found.close)
        return found

    def on_pci(self, name: str, address: str, *, numa: int = 0, again: bool = False) -> Path:
        """Files that make a link one of hardware; `again` for another name of the same."""
        device = self.sysfs / "devices/pci0000:3a" / address
        (device / "net" / name).mkdir(parents=True)
        if not again:
            (device / "subsystem").symlink_to(self.sysfs / "bus/pci")
            (device / "driver").symlink_to(self.sysfs / "bus/pci/drivers/mlx5_core")
            (device / "numa_node").write_text(f"{numa}\n")
        (device / "net" / name / "device").symlink_to(device)
        (self.sysfs / "class/net").mkdir(parents=True, exist_ok=True)
        (self.sysfs / "class/net" / name).symlink_to(device / "net" / name)
        return device

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


@pytest.fixture
def running():
    """`async with running(inventory)`: a LinkWatch follows the host meanwhile; other objects have a `run`."""

    @asynccontextmanager
    async def run(*works):
        runs = [(LinkWatch(work) if isinstance(work, Inventory) else work).run() for work in works]
        tasks = [asyncio.create_task(run) for run in runs]
        try:
            yield
            for task in tasks:
                assert not task.done() or task.exception() is None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return run


@pytest.fixture
def reported():
    """`await reported(inventory, check)`: waits until the check is true for the inventory."""

    async def wait(inventory: Inventory, check: Callable[[], object]) -> None:
        await eventually_async(
            check, explain=lambda: f"{[device['name'] for device in inventory.devices()]} {dict(inventory.health())}"
        )

    return wait

"""Every test that asks for the kernel runs in a thread of its own, with network and mount namespaces of its own.

So no test sees the machine's links, routes, rulesets or mounts, and what it makes there ends with its thread.
"""

import gc
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import pytest

from podwire.linux import errors, syscalls
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.nft.table import KernelElements, KernelRuleset
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread

TAG = f"pwt{uuid.uuid4().hex[:8]}"
"""In the name of everything that outlives a namespace."""

MS_REC_PRIVATE = 16384 | 1 << 18


def alone(work: Callable[[], None]) -> None:
    """In a thread with namespaces of its own."""

    def run() -> None:
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS | syscalls.NEWIPC)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        work()

    in_thread(run)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "kernel" not in pyfuncitem.fixturenames:
        return None
    arguments = {argname: pyfuncitem.funcargs[argname] for argname in pyfuncitem._fixtureinfo.argnames}
    alone(lambda: pyfuncitem.obj(**arguments))
    return True


class Kernel:
    """All parts of it by one name, seen from the calling thread's namespaces."""

    network = KernelNetwork
    namespaces = KernelNamespaces
    elements = KernelElements
    ruleset = KernelRuleset
    sysctls = KernelSysctls
    conntrack = KernelConntrack

    def __init__(self) -> None:
        self.mounts = KernelMounts()

    @cached_property
    def cgroups(self) -> KernelCgroups:
        return KernelCgroups()


@pytest.fixture
def kernel():
    return Kernel()


@pytest.fixture
def host(kernel, tmp_path):
    """Opens a namespace, on demand: the test's thread must be the one that asks."""
    made = kernel.namespaces(tmp_path / "ns")
    opened = []

    def open_(name):
        try:
            path = made.create(name).path
        except errors.NamespaceExists:
            path = made.path(name)
        opened.append(kernel.network(path))
        return opened[-1], path

    yield open_
    for item in opened:
        item.close()
    for item in made.list():
        made.remove(item.name)


@pytest.fixture
def group() -> Iterator[str]:
    """A cgroup path that nobody else uses; whatever is there afterwards is killed and removed."""
    path = f"{TAG}-{uuid.uuid4().hex[:8]}"
    yield path
    cgroups = KernelCgroups()
    cgroups.kill(path)
    cgroups.remove(path)


def reported(*command: str, netns: str | None = None):
    """JSON output of another program in a namespace."""
    entered = ("nsenter", f"--net={netns}", "--", *command) if netns else command
    done = subprocess.run(entered, capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "[]")


@pytest.fixture(name="reported")
def _reported():
    return reported


def descriptors() -> set[tuple[str, str]]:
    """Those that are open, each with what it is of. What another test has forgotten is closed before.

    More may be closed at any time by its owner, so a test asks whether there are new ones.
    """
    gc.collect()
    return opened()


def opened() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - closed before the first of them is looked at
        with suppress(FileNotFoundError):
            found.add((name, str(Path(f"/proc/self/fd/{name}").readlink())))
    return found


@pytest.fixture(name="descriptors")
def _descriptors():
    return descriptors


@pytest.fixture(name="children")
def _children():
    return children


def children() -> list[str]:
    """Processes that this one has yet to reap."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):
            found += (thread / "children").read_text().split()
    return found


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(tmp_path_factory) -> Iterator[None]:
    """After the last test of a file: no mount, group, child or descriptor that was not there before the first.

    By file, because tests of other packages run in the same process before and after.
    """
    files, others = opened(), set(children())
    yield
    base = str(tmp_path_factory.getbasetemp())
    assert [item.target for item in mounted() if item.target.startswith(base)] == []
    assert [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{TAG}*")] == []
    assert [str(path) for path in Path("/sys/fs/cgroup").glob(f"{TAG}*")] == []
    assert set(children()) <= others
    if len(opened()) > len(files) + 4:  # garbage is collected only then: in a process that ran many tests it takes long
        assert len(descriptors()) <= len(files) + 4, "descriptors leak"

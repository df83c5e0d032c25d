"""Stores to test: every kind, on the real thing."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from podwire.protocols.storage import Change, Watch
from podwire.store import AnyStore, MemoryStore, Window
from podwire.store.etcd import EtcdStore
from podwire.store.sqlite import SqliteStore

ETCD = "/usr/bin/etcd"
START_SECONDS = 20.0


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [socket.getsockname()[1] for socket in sockets]
    for item in sockets:
        item.close()
    return ports


def etcd_binary() -> str:
    found = shutil.which("etcd") or (ETCD if Path(ETCD).exists() else None)
    if found is None:
        pytest.fail("etcd is not installed (Debian: etcd-server)")
    return found


class EtcdMember:
    """One etcd process that can be killed, paused and started again on the same ports and data."""

    def __init__(self, directory: Path, *options: str, scheme: str = "http", client: int = 0, peer: int = 0) -> None:
        self.directory = directory
        self.client, self.peer = (client, peer) if client else free_ports(2)
        self.address = f"127.0.0.1:{self.client}"
        self.log = directory / "log"
        self._scheme = scheme
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.directory.mkdir(exist_ok=True)
        client, peer = f"{self._scheme}://{self.address}", f"http://127.0.0.1:{self.peer}"
        arguments = {
            "--name": self.directory.name,
            "--data-dir": str(self.directory / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"{self.directory.name}={peer}",
        }
        flat = [word for pair in arguments.items() for word in pair]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([etcd_binary(), *flat, *self._options], stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it is healthy, or with TLS takes connections."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(0.02)
        pytest.fail(f"etcd did not start:\n{self.log.read_text()[-2000:]}")

    def _answers(self) -> bool:
        try:
            if self._scheme == "https":
                socket.create_connection(("127.0.0.1", self.client), timeout=1).close()
                return True
            with urllib.request.urlopen(f"http://{self.address}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except OSError:
            return False

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


StartEtcd = Callable[..., EtcdMember]


@pytest.fixture
def start_etcd(tmp_path: Path) -> Iterator[StartEtcd]:
    """Starts a private etcd: `start_etcd("--quota-backend-bytes=…")`."""
    members: list[EtcdMember] = []

    def start(*options: str, **settings: str) -> EtcdMember:
        member = EtcdMember(tmp_path / f"etcd{len(members)}", *options, **settings)
        members.append(member)
        member.start()
        member.wait()
        return member

    yield start
    for item in members:
        item.kill()


@pytest.fixture
def etcd_cluster(tmp_path: Path) -> Iterator[list[EtcdMember]]:
    """Three members."""
    ports = free_ports(6)
    names = [f"etcd{number}" for number in range(3)]
    peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports[3:], strict=True))
    members = [
        EtcdMember(tmp_path / name, "--initial-cluster", peers, client=ports[number], peer=ports[number + 3])
        for number, name in enumerate(names)
    ]
    for member in members:
        member.start()
    for member in members:
        member.wait()
    yield members
    for member in members:
        member.kill()


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    """One etcd for all tests that bring their own prefix."""
    member = EtcdMember(tmp_path_factory.mktemp("etcd"))
    member.start()
    member.wait()
    yield member
    member.kill()


OpenStore = Callable[..., Awaitable[AnyStore]]


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def open_a_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens an empty store of each kind, with the given window and queue."""
    opened: list[AnyStore] = []

    async def opener(*, keep: Window | None = None, queue: int = 1000) -> AnyStore:
        store: AnyStore
        if request.param == "memory":
            store = MemoryStore(keep=keep, queue=queue)
        elif request.param == "sqlite":
            store = await SqliteStore.open(tmp_path, keep=keep, queue=queue)
        else:
            member = request.getfixturevalue("shared_etcd")
            url = f"etcd://{member.address}?prefix=/{uuid.uuid4().hex}"
            store = await EtcdStore.open(url, keep=keep, queue=queue)
        opened.append(store)
        return store

    yield opener
    for item in opened:
        await item.close()


@pytest.fixture
async def store(open_a_store: OpenStore) -> AnyStore:
    return await open_a_store()


Take = Callable[[Watch, int], Awaitable[list[Change]]]


@pytest.fixture
def take() -> Take:
    """The next so many changes of a watch, within seconds."""

    async def taken(watch: Watch, count: int) -> list[Change]:
        changes: list[Change] = []
        async with asyncio.timeout(60):
            while len(changes) < count:
                changes += await watch.next()
        assert len(changes) == count, f"asked for {count}, got {changes}"
        return changes

    return taken


RunProgram = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def run_program() -> Iterator[RunProgram]:
    """Starts `python PROGRAM ARGUMENTS…` behind a wrapper command, with more environment."""
    children: list[subprocess.Popen[bytes]] = []

    def run(program: Path, *arguments: object, wrapper: tuple[str, ...] = (), **env: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [*wrapper, sys.executable, str(program), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            start_new_session=True,
        )
        children.append(child)
        return child

    yield run
    for item in children:
        if item.poll() is None:
            os.killpg(item.pid, signal.SIGKILL)
        item.communicate()

"""Fixtures of these stories; support.py has the classes."""

import fcntl
import os
import random
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.stories.support import ApiServer, Etcd, Kubectl, StartServer, kubectls, running_processes


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        report.sections += [
            (f"log of {process.name}", process.log.read_text()[-6000:]) for process in running_processes
        ]
    return report


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts API servers: `start_server("one", store="memory://")`."""
    servers: list[ApiServer] = []

    def start(name: str = "server", *options: str, store: str = "sqlite://", **env: str) -> ApiServer:
        server = ApiServer(tmp_path / name, *options, store=store)
        servers.append(server)
        server.start(**env)
        return server

    yield start
    with ExitStack() as every:
        for item in servers:
            every.callback(item.close)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One for all stories that bring their own namespace."""
    shared = ApiServer(tmp_path_factory.mktemp("shared") / "server")
    shared.start()
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """One for all stories; `etcd.url()` is a store of its own in it."""
    member = Etcd(tmp_path_factory.mktemp("etcd") / "data")
    member.start()
    yield member
    member.kill()


@pytest.fixture
def namespace(server: ApiServer) -> Iterator[str]:
    """A new namespace on the shared server."""
    name = f"story-{uuid.uuid4().hex[:8]}"
    server.rest("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    server.ask("DELETE", f"/api/v1/namespaces/{name}")


def _alone() -> Iterator[None]:
    with Path(__file__).open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def own_machine() -> Iterator[None]:
    """One at a time: clusters without a prefix share names that are the machine's, such as that of their cgroup."""
    yield from _alone()


@pytest.fixture(scope="module")
def own_machine_for_all() -> Iterator[None]:
    """The same for all stories of a module."""
    yield from _alone()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Stories that ask for `kubectl` are run with the oldest, the newest, and one that the seed picks for each.

    In soak with each; where the module has FEW_KUBECTLS, never with more than three.
    """
    if "kubectl" in metafunc.fixturenames:
        found = [pytest.param(path, id=name) for name, path in kubectls().items()]
        if hasattr(metafunc.module, "FEW_KUBECTLS") or not os.environ.get("PODWIRE_SOAK"):
            seed = os.environ.get("PODWIRE_CRASH_SEED", "1")
            between = random.Random(f"{seed}/{metafunc.function.__name__}").sample(range(1, len(found) - 1), 1)
            found = [found[item] for item in (0, *between, len(found) - 1)] if len(found) > 3 else found
        metafunc.parametrize("kubectl_program", found)


@pytest.fixture
def kubectl(kubectl_program: Path, server: ApiServer, namespace: str) -> Kubectl:
    """A kubectl on the shared server, in a new namespace."""
    assert kubectl_program.exists(), f"{kubectl_program} is not here; run scripts/setup"
    home = server.data_dir.with_name(f"home-{kubectl_program.name}-{kubectl_program.parent.parent.name}")
    home.mkdir(exist_ok=True)
    return Kubectl(kubectl_program, home, server.kubeconfig, namespace)

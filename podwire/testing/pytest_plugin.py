"""Fixtures for pytest, loaded wherever podwire is installed (entry point `pytest11`).

Nothing is started before a test asks for it. All workers of pytest-xdist share the clusters: the directory is made by
the process that began the tests, which checks for leftovers and removes the clusters at its end.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from podwire.testing.api_server import ApiServer
    from podwire.testing.cluster import Node, TestCluster
    from podwire.testing.pods import Pod

DIRECTORY = "PODWIRE_PYTEST_DIRECTORY"
"""Set for the workers of pytest-xdist."""
_OWNED = pytest.StashKey[Path]()
_LEFT = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("podwire_up", "options of `podwire up` for podwire_cluster", type="args", default=[])
    parser.addini("podwire_hardware", "profile or file of the hardware of podwire_hardware", default="sriov")


def pytest_configure(config: pytest.Config) -> None:
    if DIRECTORY not in os.environ:
        directory = Path(tempfile.mkdtemp(prefix="pwt", dir="/tmp"))
        os.environ[DIRECTORY] = str(directory)
        config.stash[_OWNED] = directory


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leftovers of a cluster fail the run."""
    directory = session.config.stash.get(_OWNED, None)
    if directory is None:
        return
    from podwire.testing.cluster import CommandFailed, TestCluster  # noqa: PLC0415 - see podwire_cluster

    left = ""
    for prefix in sorted(path for path in directory.iterdir() if (path / "var/lib/podwire").is_dir()):
        cluster = TestCluster(prefix)
        try:
            left += cluster.leftovers()
            cluster.down()
        except CommandFailed as error:
            left += f"{error}\n"
    session.config.stash[_LEFT] = left
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if left := config.stash.get(_LEFT, ""):
        terminalreporter.section("podwire: leftovers of the tests")
        terminalreporter.write_line(left)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (directory := config.stash.get(_OWNED, None)) is not None:
        os.environ.pop(DIRECTORY, None)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def podwire_cluster(request: pytest.FixtureRequest) -> "TestCluster":
    """A cluster that all tests of the session share. Options of `podwire up` are in the ini option `podwire_up`."""
    from podwire.testing.cluster import TestCluster  # noqa: PLC0415 - most sessions of pytest use no cluster

    return _started(TestCluster(Path(os.environ[DIRECTORY], "c"), tuple(request.config.getini("podwire_up"))))


@pytest.fixture(scope="session")
def podwire_hardware(request: pytest.FixtureRequest) -> "TestCluster":
    """A cluster whose node has simulated hardware: the profile of the ini option `podwire_hardware`."""
    from podwire.testing.cluster import TestCluster  # noqa: PLC0415 - see podwire_cluster

    profile = request.config.getini("podwire_hardware")
    return _started(TestCluster(Path(os.environ[DIRECTORY], "h"), ("--hardware", profile)))


def _started(cluster: "TestCluster") -> "TestCluster":
    if os.geteuid() != 0:
        pytest.skip("a cluster of podwire needs root")
    cluster.up()
    return cluster


@pytest.fixture(scope="session")
def podwire_node(podwire_cluster: "TestCluster") -> "Node":
    """The first node of podwire_cluster."""
    return podwire_cluster.node()


@pytest.fixture(scope="session")
def podwire_api() -> Iterator["ApiServer"]:
    """An API server alone, with a store in memory: nothing runs pods. Each worker has its own; it needs no root."""
    from podwire.testing.api_server import ApiServer  # noqa: PLC0415 - see podwire_cluster

    with tempfile.TemporaryDirectory(prefix="api", dir=os.environ[DIRECTORY]) as directory:
        server = ApiServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def podwire_namespace(podwire_cluster: "TestCluster", request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of podwire_cluster for one test; it is deleted with all that is in it."""
    from podwire.testing import pods  # noqa: PLC0415 - see podwire_cluster

    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = pods.create_namespace(podwire_cluster, words or "test")
    yield name
    pods.delete_namespace(podwire_cluster, name)


@pytest.fixture
def podwire_pod(podwire_cluster: "TestCluster", podwire_namespace: str) -> Iterator[Callable[..., "Pod"]]:
    """A function that runs pods in the namespace of the test: `podwire_pod()`, `podwire_pod("web", **spec)` or
    `podwire_pod(manifest={…})`; it returns when the pod is ready, unless `ready=False`."""
    from podwire.testing import pods  # noqa: PLC0415 - see podwire_cluster

    made: list[Pod] = []

    def make(name: str = "", *, manifest: dict[str, Any] | None = None, ready: bool = True, **spec: Any) -> "Pod":
        full = pods.simple_pod(name, **spec) if manifest is None else manifest
        made.append(pods.run_pod(podwire_cluster, podwire_namespace, full, ready=ready))
        return made[-1]

    yield make
    for pod in made:
        pod.delete()

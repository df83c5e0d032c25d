"""Fixtures of these stories; support.py has the classes."""

from collections.abc import Callable, Iterator

import pytest

from podwire.protocols.k8sapi.watch import Object
from tests.stories.cluster.support import SMALL, Cluster, a_pod, sweep_orphans


@pytest.fixture(scope="session")
def swept() -> None:
    sweep_orphans()


@pytest.fixture
def cluster(swept: None) -> Iterator[Cluster]:
    """Not up yet."""
    yield from _closed(Cluster())


@pytest.fixture
def small_cluster(swept: None) -> Iterator[Cluster]:
    """On a disk that a story can fill."""
    yield from _closed(Cluster(megabytes=SMALL))


def _closed(made: Cluster) -> Iterator[Cluster]:
    try:
        yield made
        assert not (tracebacks := made.tracebacks()), tracebacks
    finally:
        made.close()


@pytest.fixture(name="a_pod")
def _a_pod() -> Callable[..., Object]:
    return a_pod


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    cluster = item.funcargs.get("cluster") or item.funcargs.get("small_cluster")
    if report.failed and cluster is not None and cluster.prefix.exists():
        report.sections.append(("logs of the cluster", cluster.logs()))
    return report

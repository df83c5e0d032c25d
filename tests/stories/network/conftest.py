"""Fixtures of these stories; support.py has the classes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podwire.protocols.k8sapi.watch import Object
from tests.stories.cluster import conftest as cluster_fixtures
from tests.stories.network.support import Network, a_pod, a_policy, a_resource

swept, cluster = cluster_fixtures.swept, cluster_fixtures.cluster
pytest_runtest_makereport = cluster_fixtures.pytest_runtest_makereport


@pytest.fixture
def network(cluster: Any, tmp_path: Path) -> Iterator[Network]:
    """Not up yet."""
    made = Network(cluster, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(name="a_pod")
def _a_pod() -> Callable[..., Object]:
    return a_pod


@pytest.fixture(name="a_policy")
def _a_policy() -> Callable[..., Object]:
    return a_policy


@pytest.fixture(name="a_resource")
def _a_resource() -> Callable[..., Object]:
    return a_resource

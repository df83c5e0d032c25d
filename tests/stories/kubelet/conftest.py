"""Fixtures of these stories; support.py has the classes."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stories.kubelet.support import Node, container, pod, running, running_nodes
from tests.stories.runtime import conftest as runtime_fixtures

template = runtime_fixtures.template


@pytest.fixture(scope="module")
def node(template: Path) -> Iterator[Node]:
    with running(template) as made:
        yield made


@pytest.fixture(name="running", scope="session")
def _running() -> Callable[..., Any]:
    return running


@pytest.fixture(name="pod", scope="session")
def _pod() -> Callable[..., dict[str, Any]]:
    return pod


@pytest.fixture(name="container", scope="session")
def _container() -> Callable[..., dict[str, Any]]:
    return container


@pytest.fixture
def name() -> str:
    """For a pod of this story."""
    return f"p-{uuid.uuid4().hex[:6]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for node in running_nodes:
            report.sections += [(f"{name} of {node.prefix.name}", text[-5000:]) for name, text in node.logs_of_all()]
    return report

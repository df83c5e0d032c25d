"""Fixtures of these stories; support.py has the classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stories.cluster import conftest as cluster_fixtures
from tests.stories.driver.support import Stage, claim, parameters

swept = cluster_fixtures.swept


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories of a file share a cluster, and wait for it."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.timeout(400))


def _closing(made: Stage) -> Iterator[Stage]:
    try:
        yield made
        assert not (tracebacks := made.cluster.tracebacks()), tracebacks
    finally:
        made.close()


@pytest.fixture
def own_stage(swept: None, tmp_path: Path) -> Iterator[Stage]:
    """For one story alone; not up yet."""
    yield from _closing(Stage(tmp_path))


@pytest.fixture(scope="module")
def empty_stage(swept: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """For the stories of a file; not up yet."""
    yield from _closing(Stage(tmp_path_factory.mktemp("stage")))


@pytest.fixture
def stage(running_stage: Stage) -> Stage:
    """A file's own `running_stage`, with its driver, whatever the story before did to it."""
    if not running_stage.driver.alive:
        running_stage.driver.start()
    return running_stage


@pytest.fixture(name="claim")
def _claim() -> Any:
    return claim


@pytest.fixture(name="parameters")
def _parameters() -> Any:
    return parameters


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    stage = next((each for name, each in item.funcargs.items() if name.endswith("stage")), None)
    if report.failed and stage is not None and stage.cluster.prefix.exists():
        report.sections.append(("logs of the stage", stage.logs()))
    return report

"""Fixtures of these stories; support.py has the classes."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from podwire.runtime.images import Images, build
from tests.stories.runtime.support import Kubelet, Runtime, kubelet_of, sweep_orphans


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image store with busybox in it, made once."""
    sweep_orphans()
    directory = tmp_path_factory.mktemp("images") / "store"
    images = Images(directory)
    build.build_root(images)
    images.close()
    return directory


@pytest.fixture(scope="session")
def shared(template: Path) -> Iterator[Runtime]:
    """A runtime for all stories that do not harm it."""
    runtime = Runtime(template)
    try:
        runtime.start()
        yield runtime
        assert runtime.stop() == 0
        assert runtime.leaks() == []
        assert runtime.leakcheck() == (0, [])
        assert "Traceback" not in (log := runtime.log.read_text()), log[-6000:]
    finally:
        runtime.close()


@pytest.fixture
def own(template: Path) -> Iterator[Runtime]:
    """A runtime of the story's own, not started yet."""
    runtime = Runtime(template)
    try:
        yield runtime
    finally:
        runtime.close()


@pytest.fixture
async def cri(shared: Runtime) -> AsyncIterator[Kubelet]:
    """At the shared runtime; the pods that it ran are removed afterwards."""
    async with kubelet_of(shared) as kubelet:
        yield kubelet
        await kubelet.remove_all()


@pytest.fixture(name="kubelet_of")
def _kubelet_of() -> Callable[[Runtime], contextlib.AbstractAsyncContextManager[Kubelet]]:
    return kubelet_of


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        for name in ("shared", "own"):
            runtime = item.funcargs.get(name)
            if runtime is not None and runtime.log.exists():
                report.sections.append((f"log of {name}", runtime.log.read_text()[-6000:]))
    return report

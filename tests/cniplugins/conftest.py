"""Fixtures of the plugins' tests: a host of its own for every test that asks for one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from podwire.cniplugins.install import install
from tests.cniplugins import support
from tests.cniplugins.support import Host, Refused, on_own_host


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if "host" not in pyfuncitem.fixturenames:
        return None
    arguments = {argname: pyfuncitem.funcargs[argname] for argname in pyfuncitem._fixtureinfo.argnames}

    def run() -> None:
        try:
            pyfuncitem.obj(**arguments)
        finally:
            pyfuncitem.funcargs["host"].end()

    on_own_host(run)
    return True


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """Without a daemon."""
    directory = tmp_path_factory.mktemp("cni") / "bin"
    install(str(directory), socket=str(directory / "nobody.sock"))
    return directory


@pytest.fixture
def way() -> str:
    """How plugins are called: "in process", as a "program", or as one that has a "daemon"."""
    return "in process"


@pytest.fixture
def host(tmp_path, programs, way) -> Iterator[Host]:
    yield Host(tmp_path, programs, way)
    with suppress(FileNotFoundError):
        for path in (tmp_path / "netns").iterdir():
            path.unlink()  # what it pinned went with the mounts of the test's thread


@pytest.fixture
def hosts(tmp_path, programs) -> Callable[[Callable[[Host], None]], None]:
    """`hosts(work)`: a new host for this piece of work, as often as a test likes."""
    numbers = count()

    def on_another(work: Callable[[Host], None]) -> None:
        root = tmp_path / str(next(numbers))
        root.mkdir()
        host = Host(root, programs, "in process")

        def run() -> None:
            try:
                work(host)
            finally:
                host.end()

        on_own_host(run)

    return on_another


@pytest.fixture(name="serving")
def _serving():
    return support.serving


@pytest.fixture(name="seen")
def _seen():
    return support.seen


@pytest.fixture
def refused():
    """`with refused(7, match="…"):` a plugin says no with this code."""

    @contextmanager
    def expect(code: int, match: str = "") -> Iterator[None]:
        with pytest.raises(Refused, match=match) as caught:
            yield
        assert caught.value.code == code, caught.value.error

    return expect

"""Fixtures and hooks for all tests."""

import contextlib
import gc
import logging
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# No deadline per example: the duration says more about the machine's other work than about ours, and pytest-timeout
# ends a test that hangs. `make soak` runs twenty times as many examples.
settings.register_profile("sample", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("sample"), max_examples=2000)
settings.load_profile("soak" if os.environ.get("PODWIRE_SOAK") else "sample")


# With fork support gRPC would restart its threads after every fork, in the network namespace of the forking thread: a
# test may be visiting another one just then.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

SOAK = bool(os.environ.get("PODWIRE_SOAK"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--counts", metavar="FILE", help="write the counts to FILE, and the failed tests to FILE.failed")


TOGETHER = re.compile(
    r"tests/stories/(?:containerd(?=/)|driver/\w+|test_4(?:50|55|60)_\w+|runtime/test_3(?:4\d|[56]0)_\w+"
    r"|kubelet/test_(?:487|840)_\w+)"
)
"""Tests that share a machine or a cluster, so that one worker plays them."""


def unit_of(nodeid: str) -> str:
    """Returns the unit of a test, which one worker plays as a whole.

    Tests with numbers are units by their file: each goes on where the one before it ended.
    """
    path, _, name = nodeid.partition("::")
    if match := TOGETHER.match(path):
        return match.group()
    return path if re.match(r"test_\d", name) else nodeid


class UnitScheduling(LoadScopeScheduling):
    """Hands units to the workers. The groups of xdist's `loadgroup` have no effect with this version of pytest."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return UnitScheduling(config, log)


class FailureLog:
    """Writes the name of each failed test at once, so that a run that is killed has reported which ones failed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--counts")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLog(Path(f"{file}.failed")))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """`scripts/test` prints these counts in its last line, however the run ended."""
    file = config.getoption("--counts")
    if not file:
        return
    stats = terminalreporter.stats
    failed = sorted({report.nodeid for outcome in ("failed", "error") for report in stats.get(outcome, ())})
    numbers = {"passed": len(stats.get("passed", ())), "failed": len(failed), "skipped": len(stats.get("skipped", ()))}
    Path(file).write_text(", ".join(f"{number} {outcome}" for outcome, number in numbers.items()), encoding="utf-8")
    Path(f"{file}.failed").write_text("".join(f"{nodeid}\n" for nodeid in failed), encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what is marked `soak`; a run that names such a test by its node id plays it."""
    if SOAK or any("::" in argument for argument in config.args):
        return
    deselected = [item for item in items if item.get_closest_marker("soak")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_collection_finish() -> None:
    """Tests and their imports live until the end: freezing them keeps the garbage collector from scanning them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """A program that runs inside a test configures logging; the next test starts from the same configuration."""
    loggers = [logging.getLogger(name) for name in ("", "podwire", "podwire.nri")]
    before = [(logger.handlers[:], logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def _restore_signals() -> Iterator[None]:
    """A daemon that runs inside a test ignores signals after its end; children of the next test would inherit that."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _start_grpc_in_the_host_namespace() -> Iterator[None]:
    """gRPC starts its threads in the caller's network namespace and keeps them while a channel exists. Started by a
    test that visits another namespace, they would still be there when the next test connects to its server."""
    import grpc  # after GRPC_ENABLE_FORK_SUPPORT is set

    with grpc.insecure_channel("127.0.0.1:9") as channel:
        with contextlib.suppress(grpc.RpcError):
            channel.unary_unary("/nobody/listens")(b"", timeout=1.0)
        yield

"""What holds for all tests."""

import contextlib
import gc
import logging
import os
import signal
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine's other work than about ours; a test that hangs is ended by
# pytest-timeout. Under `make soak` there are twenty times as many examples.
settings.register_profile("sample", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("sample"), max_examples=2000)
settings.load_profile("soak" if os.environ.get("PODWIRE_SOAK") else "sample")


# gRPC would begin its threads anew after every fork, where the one who forks is: in another network namespace, if a
# test visits one.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

ROTA = {
    "tests/apiserver/abuse/": 2,
    "tests/benchmarks/": 3,
    "tests/cli/test_demo.py": 3,
    "tests/cniplugins/crash/": 3,
    "tests/deviceplugin/test_crash.py": 3,
    "tests/deviceplugin/test_plugin.py": 3,
    "tests/dradriver/addresses/": 2,
    "tests/shim/": 2,
    "tests/stories/cluster/": 4,
    "tests/stories/containerd/": 3,
    "tests/stories/driver/": 5,
    "tests/stories/kubelet/": 5,
    "tests/stories/network/": 4,
    "tests/stories/runtime/": 3,
    "tests/stories/test_010_kubectl_tour.py": 3,
    "tests/stories/test_015_kubectl_makes_and_administers.py": 2,
    "tests/stories/test_020_custom_resources.py": 2,
    "tests/stories/test_021_custom_rules.py": 2,
    "tests/stories/test_025_": 2,
    "tests/stories/test_036_network_parameters.py": 2,
    "tests/stories/test_060_two_servers.py": 2,
    "tests/stories/test_080_abuse.py": 2,
    "tests/stories/test_300_logs_exec.py": 3,
    "tests/stories/test_400_up_and_down.py": 3,
    "tests/stories/test_410_up_on_the_host.py": 2,
    "tests/stories/test_420_up_with_containerd.py": 2,
    "tests/stories/test_440_nodes.py": 2,
    "tests/stories/test_500_demo.py::test_every_step": 1,
    "tests/stories/test_500_demo.py": 3,
    "tests/stories/test_510_pages.py": 4,
}
"""Long rounds of which a run of `make test` plays one in so many; its seed says which. `make soak` plays them all."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = os.environ.get("PODWIRE_CRASH_SEED", "")
    if not seed or os.environ.get("PODWIRE_SOAK"):
        return
    idle = [each for each in items if each.get_closest_marker("only_soak") or not _has_its_turn(each.nodeid, seed)]
    if idle:
        config.hook.pytest_deselected(items=idle)
        left_out = set(idle)
        items[:] = [each for each in items if each not in left_out]


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay until the end: nobody needs to look through them for garbage."""
    gc.collect()
    gc.freeze()


def _has_its_turn(name: str, seed: str) -> bool:
    turns = next((number for beginning, number in ROTA.items() if name.startswith(beginning)), 1)
    return zlib.crc32(f"{seed} {name}".encode()) % turns == 0


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A program that is run within a test sets up how it logs; the next test hears what it would have heard."""
    loggers = [logging.getLogger(name) for name in ("", "podwire", "podwire.nri")]
    before = [(each.handlers[:], each.level) for each in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """A daemon that is run within a test stays deaf when it has ended; what the next test starts would be born deaf."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for each, handler in before.items():
        if signal.getsignal(each) is not handler:
            signal.signal(each, handler)


@pytest.fixture(scope="session", autouse=True)
def _grpc_at_home() -> Iterator[None]:
    """gRPC makes its threads where the caller is, and keeps them for as long as there is a channel. Made by a test that
    visits another network namespace, they would be there still when the next one looks for its server."""
    import grpc  # only now it is told how to fork

    with grpc.insecure_channel("127.0.0.1:9") as channel:
        with contextlib.suppress(grpc.RpcError):
            channel.unary_unary("/nobody/listens")(b"", timeout=1.0)
        yield

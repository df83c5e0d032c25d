"""Fixtures of the tests that kill plugins at work. PODWIRE_SOAK tries all points, PODWIRE_CRASH_SEED repeats a run."""

import random
from collections.abc import Callable

import pytest

from podwire.inspect.leakcheck import Leftover
from tests.cniplugins.crash import support
from tests.cniplugins.crash.support import SEED, SOAK, Attack, Called, Network, Point, Step, attacks


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack" in metafunc.fixturenames:
        metafunc.parametrize("attack", attacks(8, 3), ids=str)
    if "attack_on_daemon" in metafunc.fixturenames:
        metafunc.parametrize("attack_on_daemon", attacks(3, 2), ids=str)
    if "attack_on_forwarder" in metafunc.fixturenames:
        metafunc.parametrize("attack_on_forwarder", attacks(3, 4), ids=str)
    if "step" in metafunc.fixturenames:
        metafunc.parametrize("step", support.steps(), ids=str)
    if "some_step" in metafunc.fixturenames:
        metafunc.parametrize(
            "some_step", support.steps() if SOAK else random.Random(SEED).sample(support.steps(), 8), ids=str
        )


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"PODWIRE_CRASH_SEED={SEED}")  # noqa: T201 - repeats a run that failed


@pytest.fixture
def first_attack() -> Attack:
    return Attack("bridge", 0, "ADD", 1)


@pytest.fixture
def first_point() -> Point:
    """The first of our own files gets its name."""
    return Point("rename", 1)


@pytest.fixture(name="declared")
def _declared() -> set[str]:
    return support.declared()


@pytest.fixture(name="steps")
def _steps() -> list[Step]:
    return support.steps()


@pytest.fixture(name="leakcheck")
def _leakcheck() -> Callable[..., list[Leftover]]:
    return support.leakcheck


@pytest.fixture
def soak() -> bool:
    return SOAK


@pytest.fixture
def network() -> type[Network]:
    return Network


@pytest.fixture(name="by_program")
def _by_program() -> Called:
    return support.by_program


@pytest.fixture(name="by_forwarder")
def _by_forwarder() -> Called:
    return support.by_forwarder


@pytest.fixture(name="by_daemon")
def _by_daemon() -> Called:
    return support.by_daemon


@pytest.fixture
def chance(request) -> random.Random:
    """The same in every run with this seed."""
    return random.Random(f"{SEED} {request.node.name}")

"""Fixtures of the service proxy."""

from collections.abc import Iterator

import pytest

from tests.proxy.world import World


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    with world.serving("a", "b", "c", "remote"):
        yield world
    world.close()


@pytest.fixture
def world(shared_world) -> Iterator[World]:
    """Without any Service."""
    shared_world.clear()
    yield shared_world
    shared_world.clear()

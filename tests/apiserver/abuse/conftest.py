"""A whole API server without sockets, asked as a stranger would ask it: one call, one checked answer.

Every test that uses `house` is also checked at its end: nothing may have failed inside the server.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from podwire.apiserver import Pki
from podwire.protocols.k8sapi.kinds import Kind
from tests.apiserver.abuse.samples import STORED, sample
from tests.apiserver.abuse.support import House


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.open(tmp_path_factory.mktemp("abuse"), names=["localhost"], ips=["127.0.0.1"])


@pytest.fixture
def house(pki: Pki) -> Iterator[House]:
    """A server with a namespace `default` that has its service account."""
    yield from _opened(pki)


@pytest.fixture(scope="module")
def shared_house(pki: Pki) -> Iterator[House]:
    """One for all tests of a module, for those that leave nothing behind or do not mind."""
    yield from _opened(pki)


def _opened(pki: Pki) -> Iterator[House]:
    house = House(pki)
    house.made("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    yield house
    house.close()
    assert not house.log.failures, house.log.failures[0]


@pytest.fixture(params=STORED, ids=lambda each: f"{each.resource}.{each.version}.{each.group}")
def kind(request: pytest.FixtureRequest) -> Kind:
    """Every built-in kind that is stored, one after the other."""
    return request.param


@pytest.fixture(scope="session")
def samples() -> Any:
    """A small valid object by kind, as a function."""
    return sample

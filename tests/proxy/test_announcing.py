"""One node announces each address of a load balancer: which one, and what happens to the address on a node."""

import asyncio
import contextlib
from ipaddress import ip_address, ip_network

import pytest

from podwire.proxy import announcing
from podwire.proxy.announcing import EXCLUDED, FAILURES, Announcer, Site, address_of, ranked, sites
from podwire.proxy.model import Model
from tests.eventually import eventually_async
from tests.proxy.objects import ENDING, HERE, NAME, endpoint, service, slice_

POOL = (ip_network("192.0.2.0/24"),)
ADDRESS = ip_address("192.0.2.7")
NODES = [f"node-{number}" for number in range(1, 6)]


def test_all_nodes_choose_the_same_one_and_another_only_when_it_is_gone():
    site = Site(ADDRESS, None)
    first, second, *_ = ranked(site, NODES)
    assert ranked(site, reversed(NODES)) == ranked(site, NODES)
    for gone in NODES:
        left = [node for node in NODES if node != gone]
        assert ranked(site, left)[0] == (second if gone == first else first)


def test_addresses_are_spread_over_the_nodes():
    chosen = {ranked(Site(ip_address(f"192.0.2.{last}"), None), NODES)[0] for last in range(1, 100)}
    assert chosen == set(NODES)


def test_with_the_policy_local_a_node_needs_a_ready_endpoint():
    model = Model(HERE)
    model.put_service(NAME, service(balancer_ips=("192.0.2.7",), external_local=True))
    rows = (endpoint("10.1.0.1", "node-2"), endpoint("10.1.0.2", "node-3", ENDING), endpoint("10.1.0.3", "node-4"))
    model.put_slice(("default", "web-1"), slice_(*rows))
    [site] = sites(model, POOL)
    assert set(ranked(site, NODES)) == {"node-2", "node-4"}


def test_only_addresses_of_the_pool_are_announced():
    model = Model(HERE)
    model.put_service(NAME, service(balancer_ips=("192.0.2.7", "198.51.100.7"), external_ips=("192.0.2.8",)))
    assert sites(model, POOL) == [Site(ADDRESS, None)]
    assert sites(model, ()) == []


def node(name="node-1", ready="True", **metadata):
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.2"}],
    }
    return {"metadata": {"name": name, **metadata}, "status": status}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(node(), "10.0.0.2", id="ready"),
        pytest.param(node(ready="False"), "", id="not ready"),
        pytest.param(node(ready="Unknown"), "", id="unreachable"),
        pytest.param(node(labels={EXCLUDED: ""}), "", id="excluded"),
        pytest.param(node(deletionTimestamp="2026-01-01T00:00:00Z"), "", id="leaving"),
        pytest.param({"metadata": {"name": "new"}}, "", id="just created"),
    ],
)
def test_a_node_announces_while_it_is_ready(given, expected):
    assert address_of(given) == expected


class MemoryLinks:
    """Addresses in memory."""

    def __init__(self, *present):
        self.addresses, self.announced = set(present), []

    def present(self):
        return set(self.addresses)

    def extend(self, address, seconds):
        self.addresses.add(address)
        return True

    def announce(self, address):
        self.announced.append(address)

    def remove(self, address):
        self.addresses.discard(address)


@pytest.fixture
def announcer(monkeypatch):
    """The announcer of the second choice for the address; the first one answers while `alive` is set."""
    monkeypatch.setattr(announcing, "PERIOD", 0.01)
    first, second = ranked(Site(ADDRESS, None), ["node-1", "node-2"])
    alive = asyncio.Event()
    alive.set()
    model, links = Model(HERE), MemoryLinks(ip_address("192.0.2.99"))
    model.put_service(NAME, service(balancer_ips=("192.0.2.7",)))

    async def probe(address):
        assert address == first
        return alive.is_set()

    made = Announcer(None, second, POOL, model, links, probe)
    made._nodes.update({first: first, second: second})
    made._known.set()
    return made, links, alive


async def test_an_address_moves_when_the_first_choice_does_not_answer_and_back_again(announcer):
    made, links, alive = announcer
    task = asyncio.create_task(made._work())
    try:
        await eventually_async(lambda: not links.addresses)  # one that no Service has any more is removed
        alive.clear()
        await eventually_async(lambda: links.addresses == {ADDRESS})
        assert made._failures.popitem()[1] >= FAILURES
        assert links.announced[0] == ADDRESS
        alive.set()
        await eventually_async(lambda: not links.addresses)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

"""Foreign changes of the table are found, whichever Service they belong to."""

from ipaddress import ip_network

import pytest

from podwire.linux.nft.table import KernelElements
from podwire.linux.nft.values import Element
from podwire.proxy.audit import Audit
from podwire.proxy.program import TABLE, TARGETS
from podwire.proxy.values import Port
from tests.proxy.objects import endpoint, service, slice_
from tests.proxy.world import SETTINGS

COUNT = 9


def name(number: int) -> tuple[str, str]:
    return "default", f"s{number}"


def fill(world) -> None:
    for number in range(1, COUNT + 1):
        given = service(
            name=name(number),
            cluster_ips=(f"10.96.0.{number}",),
            ports=(Port("", 6, 80, 30000 + number),),
            balancer_ips=(f"192.0.2.{number}",),
            sources=(ip_network("198.51.100.0/24"), ip_network("203.0.113.0/25")),
            external_local=True,
            affinity=10,
        )
        world.model.put_service(given.name, given)
        world.model.put_slice(name(number), slice_(endpoint(f"10.1.0.{number}", "here"), name=given.name))
    world.tell()


@pytest.fixture
def elements(world):
    opened = KernelElements(world.node, TABLE)
    yield opened
    opened.close()


def looks(audit: Audit, most: int) -> int:
    """Returns the number of the look that finds a difference; 0 if none does."""
    return next((number for number in range(1, most + 1) if not audit.look()), 0)


def test_each_element_that_others_delete_is_found_after_a_bounded_number_of_looks(world, elements):
    fill(world)
    audit = Audit(world.kernel, world.model, rows=1)
    kinds = set()
    for number in range(1, COUNT + 1):
        for (set_, key), data in world.model.plan_of(name(number)).elements.items():
            if set_ == TARGETS or (set_ in kinds and number != COUNT):
                continue
            kinds.add(set_)
            element = Element(key, end=data) if set_.startswith("sources") else Element(key, data)
            elements.delete(set_, element)
            assert looks(audit, 2 * COUNT + 3), (set_, number)
            elements.add(set_, element)
            assert looks(audit, 2 * COUNT + 3) == 0, (set_, number)
    assert kinds == {"frontends4", "local_ids4", "endpoints4", "members4", "limited4", "sources4", "cluster_ips4"}
    (hairpin, _), *_ = world.model.hairpin()
    elements.delete(hairpin[0], Element(hairpin[1]))
    assert looks(audit, 2 * COUNT + 3)


def test_an_element_with_other_data_is_found(world, elements):
    fill(world)
    audit = Audit(world.kernel, world.model)
    (set_, key), data = next(row for row in world.model.plan_of(name(5)).elements.items() if row[0][0] == "endpoints4")
    elements.delete(set_, Element(key))
    elements.add(set_, Element(key, bytes(4) + data[4:]))
    assert not audit.look()


def test_looks_go_on_where_they_were_when_others_keep_changing_tables(world, elements):
    fill(world)
    audit = Audit(world.kernel, world.model, rows=1)
    victim = next(
        row
        for row, _ in world.model.plan_of(name(COUNT)).elements.items()
        if row[0] == "refused4" or row[0] == "frontends4"
    )
    elements.delete(victim[0], Element(victim[1]))
    for number in range(1, COUNT + 3):
        elements.add("cluster_ips4", Element(bytes((10, 97, 0, number))))
        if not audit.look():
            return
    pytest.fail("the missing element was not found")


def test_own_changes_cost_no_comparison(world, monkeypatch):
    fill(world)
    audit = Audit(world.kernel, world.model)
    while audit._due or world.kernel.was_changed_by_others():
        assert audit.look()
    compared = []
    monkeypatch.setattr(world.kernel, "has", lambda rows: not compared.extend(rows))
    monkeypatch.setattr(world.kernel, "has_rules", lambda: compared.append("rules"))
    for number in range(1, 4):
        world.model.put_service(name(number), None)
        world.tell()
        world.kernel.delete_unused()
        assert audit.look()
    world.kernel.replace(world.model.everything(), SETTINGS)
    assert audit.look()
    assert compared == []

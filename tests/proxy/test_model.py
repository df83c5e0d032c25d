"""Changes lead to where everything at once would lead."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.proxy.model import Model
from podwire.proxy.plan import frontend, list_id
from podwire.proxy.program import TARGETS
from podwire.proxy.values import Port
from tests.proxy.objects import DNS, HERE, HTTP, endpoint, service, slice_, target

EXTERNAL = frontend(4, "192.0.2.7", 6, 80)


def applied(model: Model, content: dict) -> dict:
    """The content of a kernel after a difference: what is deleted was there, and what is added was not."""
    difference = model.difference()
    for key, data in difference.deleted:
        if key[0] != TARGETS:  # several Services have the same, and the kernel counts them
            assert content.pop(key) == data
    for key, data in difference.added:
        assert key not in content or key[0] == TARGETS
        content[key] = data
    return content


ports = st.sampled_from([(HTTP,), (DNS,), (HTTP._replace(name="http"), DNS)])
colliding = st.lists(st.sampled_from(["192.0.2.7", "192.0.2.8", "10.96.0.1", "10.96.0.2"]), max_size=3).map(tuple)
services = st.builds(
    lambda name, ports, cluster_ip, node_port, external, balancer, local, affinity: service(
        name=("default", f"s{name}"),
        cluster_ips=(f"10.96.0.{cluster_ip or name}",),
        ports=tuple(port._replace(node_port=node_port) for port in ports),
        external_ips=external,
        balancer_ips=balancer,
        sources=(ip_network("198.51.100.0/24"),),
        external_local=local,
        affinity=affinity,
    ),
    st.integers(1, 3),
    ports,
    st.sampled_from([0, 0, 0, 1]),  # an address that is allocated again while its former Service is still known
    st.sampled_from([0, 30080, 30081]),
    colliding,
    colliding,
    st.booleans(),
    st.sampled_from([0, 10]),
)
endpoints = st.lists(
    st.builds(
        lambda number, node, state: endpoint(f"10.1.0.{number}", node, state),
        st.integers(1, 6),
        st.sampled_from(["here", "there"]),
        st.integers(0, 7),
    ),
    max_size=5,
)
slices = st.builds(
    lambda name, endpoints: slice_(*endpoints, ports=(("", 6, 80), ("dns", 17, 53)), name=("default", f"s{name}")),
    st.integers(1, 3),
    endpoints,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("service"), st.integers(1, 3), st.none() | services),
        st.tuples(st.just("slice"), st.integers(1, 4), st.none() | slices),
        st.tuples(st.just("tell"), st.just(0), st.none()),
    ),
    max_size=25,
)


@given(steps)
def test_differences_add_up_to_everything(actions):
    model, content = Model(HERE), {}
    for action, number, thing in actions:
        if action == "tell":
            applied(model, content)
        elif action == "slice":
            model.put_slice(("default", f"slice-{number}"), thing)
        else:
            name = thing.name if thing is not None else ("default", f"s{number}")
            if thing is not None or name in model.services:
                model.put_service(name, thing)
    applied(model, content)
    fresh = Model(HERE)
    for slice_key, each in model.slices.items():
        fresh.put_slice(slice_key, each)
    for name, each in model.services.items():
        fresh.put_service(name, each)
    fresh._lost = model._lost  # who came first is not in the objects
    whole = dict(fresh.everything())
    by_list = ("endpoints4", TARGETS)  # the order of endpoints may differ, the members may not
    assert {key: data for key, data in content.items() if key[0] not in by_list} == {
        key: data for key, data in whole.items() if key[0] not in by_list
    }
    assert members(content) == members(whole)
    for (set_, key), data in content.items():
        if set_ == "frontends4" and key[:4] in [ip_address(f"10.96.0.{number}").packed for number in (1, 2, 3)]:
            owners = [
                name
                for name, each in model.services.items()
                if ip_address(each.cluster_ips[0]).packed == key[:4]
                and any(frontend(4, each.cluster_ips[0], port.protocol, port.number) == key for port in each.ports)
            ]
            lists = [
                list_id(model.services[name], 4, port, "cluster")
                for name in owners
                for port in model.services[name].ports
            ]
            assert not owners or bytes(4) + data[:8] in lists, "a cluster address leads to its own Service"


def members(content: dict) -> dict:
    lists: dict = {}
    for (name, key), data in content.items():
        if name == "endpoints4":
            lists.setdefault(key[:12], set()).add(data)
    return lists


def changed(rows) -> list[str]:
    return sorted(name for (name, _), _ in rows if name != TARGETS)


def test_one_endpoint_more_is_one_element_of_the_list_and_one_of_the_frontends():
    model, content = Model(HERE), {}
    model.put_service(("default", "web"), service())
    some = [endpoint(f"10.1.0.{number}") for number in range(1, 51)]
    model.put_slice(("default", "a"), slice_(*some[:-1]))
    applied(model, content)
    model.put_slice(("default", "a"), slice_(*some))
    difference = model.difference()
    assert changed(difference.added) == ["endpoints4", "frontends4"]
    assert changed(difference.deleted) == ["frontends4"]


def test_an_endpoint_that_goes_moves_only_the_last_one():
    model = Model(HERE)
    model.put_service(("default", "web"), service())
    some = [endpoint(f"10.1.0.{number}") for number in range(1, 51)]
    model.put_slice(("default", "a"), slice_(*some))
    applied(model, {})
    model.put_slice(("default", "a"), slice_(*some[:10], *some[11:]))
    difference = model.difference()
    assert changed(difference.deleted) == ["endpoints4", "endpoints4", "frontends4"]
    assert changed(difference.added) == ["endpoints4", "frontends4"]


def test_an_external_address_belongs_to_the_first_service_until_it_goes():
    model, content = Model(HERE), {}
    for name, port in (("a", 80), ("b", 80), ("c", 81)):
        given = service(
            name=("default", name),
            cluster_ips=(f"10.96.0.{ord(name)}",),
            external_ips=("192.0.2.7",),
            ports=(Port("", 6, port),),
        )
        model.put_service(given.name, given)
        model.put_slice(("default", name), slice_(endpoint(f"10.1.0.{ord(name)}"), name=given.name))
    applied(model, content)
    first = content["frontends4", EXTERNAL]
    assert model.contested() == [(("default", "a"), ("default", "b"))]
    model.put_service(("default", "a"), None)
    applied(model, content)
    assert content["frontends4", EXTERNAL] != first
    assert model.contested() == []


def named(name: str, cluster_ip: str, **fields):
    return service(name=("default", name), cluster_ips=(cluster_ip,), **fields)


def put_all(model: Model, *services) -> None:
    for number, each in enumerate(services, 1):
        model.put_service(each.name, each)
        model.put_slice(("default", f"of-{each.name[1]}"), slice_(endpoint(f"10.1.0.{number}"), name=each.name))


VICTIM = named("victim", "10.96.0.1")
SOURCES = (ip_network("198.51.100.0/24"),)
THIEVES = {
    "external": named("thief", "10.96.0.2", external_ips=("10.96.0.1",)),
    "balancer": named("thief", "10.96.0.2", balancer_ips=("10.96.0.1",), sources=SOURCES),
}


@pytest.mark.parametrize("thief", THIEVES.values(), ids=THIEVES)
@pytest.mark.parametrize("is_first", [True, False], ids=["the thief first", "the thief last"])
def test_a_cluster_address_cannot_be_taken_by_another_service(thief, is_first):
    alone, content = Model(HERE), {}
    put_all(alone, VICTIM)
    expected = {key: data for key, data in applied(alone, {}).items() if key[0] == "frontends4"}
    model = Model(HERE)
    put_all(model, *((thief, VICTIM) if is_first else (VICTIM, thief)))
    model.put_slice(("default", "of-victim"), slice_(endpoint("10.1.0.1"), name=VICTIM.name))
    applied(model, content)
    ((key, data),) = expected.items()
    assert content[key] == data
    assert not [row for row in content if row[0] in ("limited4", "sources4")]
    assert model.contested() == [(VICTIM.name, thief.name)]
    model.put_service(thief.name, None)
    applied(model, content)
    assert content[key] == data
    assert model.contested() == []


def test_a_cluster_address_is_given_back_when_its_service_comes_later_than_an_external_one():
    model, content = Model(HERE), {}
    put_all(model, THIEVES["external"])
    applied(model, content)
    taken = content["frontends4", frontend(4, "10.96.0.1", 6, 80)]
    put_all(model, VICTIM)
    applied(model, content)
    assert content["frontends4", frontend(4, "10.96.0.1", 6, 80)] != taken
    model.put_service(VICTIM.name, None)
    applied(model, content)
    assert content["frontends4", frontend(4, "10.96.0.1", 6, 80)] == taken


def test_a_node_port_belongs_to_the_first_service_until_it_goes():
    model, content = Model(HERE), {}
    ports, key = (Port("", 6, 80, 30080),), ("frontends4", frontend(4, "", 6, 30080))
    put_all(model, named("a", "10.96.0.1", ports=ports), named("b", "10.96.0.2", ports=ports))
    applied(model, content)
    first = content[key]
    assert model.contested() == [(("default", "a"), ("default", "b"))]
    model.put_service(("default", "b"), None)
    applied(model, content)
    assert content[key] == first
    put_all(model, named("b", "10.96.0.2", ports=ports))
    model.put_service(("default", "a"), None)
    applied(model, content)
    assert content[key] != first


def test_a_service_that_names_its_own_cluster_address_as_external_is_served_there_as_inside():
    inside, both = Model(HERE), Model(HERE)
    put_all(inside, VICTIM)
    put_all(both, VICTIM._replace(external_ips=("10.96.0.1",), balancer_ips=("10.96.0.1",), sources=SOURCES))
    assert applied(both, {}) == applied(inside, {})


def test_udp_connections_of_an_address_that_changes_hands_may_lead_to_its_new_service():
    model, key = Model(HERE), (4, frontend(4, "10.96.0.1", 17, 53))
    first = named("a", "10.96.0.2", external_ips=("10.96.0.1",), ports=(DNS,))
    for address, wants in {"10.1.0.1": first, "10.1.0.2": named("b", "10.96.0.1", ports=(DNS,))}.items():
        model.put_service(wants.name, wants)
        model.put_slice(wants.name, slice_(endpoint(address), ports=(("dns", 17, 53),), name=wants.name))
        assert model.difference().datagrams[key] == {target(address, 53)}


def test_udp_frontends_that_lost_an_endpoint_or_got_the_first_are_reported():
    model = Model(HERE)
    dns, key = service(ports=(DNS,)), (4, frontend(4, "10.96.0.10", 17, 53))

    def reported(*addresses: str):
        ports = (("dns", 17, 53),)
        model.put_slice(("default", "a"), slice_(*map(endpoint, addresses), ports=ports))
        return model.difference().datagrams

    model.put_service(dns.name, dns)
    assert model.difference().datagrams == {}
    assert key in reported("10.1.0.1")
    assert reported("10.1.0.1", "10.1.0.2") == {}
    assert key in reported("10.1.0.2")
    model.put_service(dns.name, None)
    assert model.difference().datagrams == {key: frozenset()}

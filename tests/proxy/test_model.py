"""Changes lead to where everything at once would lead."""

from hypothesis import given
from hypothesis import strategies as st

from podwire.proxy.model import Model
from podwire.proxy.plan import frontend
from podwire.proxy.program import TARGETS
from podwire.proxy.values import Port
from tests.proxy.objects import DNS, HERE, HTTP, endpoint, service, slice_

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
services = st.builds(
    lambda name, ports, external, local, affinity: service(
        name=("default", f"s{name}"),
        cluster_ips=(f"10.96.0.{name}",),
        ports=ports,
        external_ips=external,
        external_local=local,
        affinity=affinity,
    ),
    st.integers(1, 3),
    ports,
    st.sampled_from([(), ("192.0.2.7",), ("192.0.2.7", "192.0.2.8")]),
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
    fresh._claims = model._claims
    whole = dict(fresh.everything())
    by_list = ("endpoints4", TARGETS)  # the order of endpoints may differ, the members may not
    assert {key: data for key, data in content.items() if key[0] not in by_list} == {
        key: data for key, data in whole.items() if key[0] not in by_list
    }
    assert members(content) == members(whole)


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


def test_udp_frontends_that_lost_an_endpoint_or_got_the_first_are_told():
    model = Model(HERE)
    dns, key = service(ports=(DNS,)), (4, frontend(4, "10.96.0.10", 17, 53))

    def told(*addresses: str):
        ports = (("dns", 17, 53),)
        model.put_slice(("default", "a"), slice_(*map(endpoint, addresses), ports=ports))
        return model.difference().datagrams

    model.put_service(dns.name, dns)
    assert model.difference().datagrams == {}
    assert key in told("10.1.0.1")
    assert told("10.1.0.1", "10.1.0.2") == {}
    assert key in told("10.1.0.2")
    model.put_service(dns.name, None)
    assert model.difference().datagrams == {key: frozenset()}

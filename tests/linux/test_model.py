"""The kernel and its double are told the same things, whatever comes to mind, and say the same."""

import itertools
import os
from ipaddress import ip_address, ip_interface, ip_network

from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.linux import errors
from podwire.linux.kernel import RealKernel
from podwire.linux.memory import MemoryKernel
from podwire.linux.values import Bridge, Route, Veth

NAMES = st.sampled_from(["x", "y", "z", "lo"])
SPACES = st.sampled_from(["a", "b"])
INTERFACES = st.sampled_from(
    [ip_interface(each) for each in ("10.0.0.1/24", "10.0.0.2/24", "10.0.1.1/32", "10.0.0.1/16")]
)
DESTINATIONS = st.sampled_from([ip_network(each) for each in ("0.0.0.0/0", "10.0.0.0/24", "10.9.0.0/16")])
GATEWAYS = st.sampled_from([None, ip_address("10.0.0.9"), ip_address("10.0.7.9"), ip_address("192.0.2.1")])
METRICS = st.sampled_from([0, 5])

OPERATIONS = st.one_of(
    st.tuples(st.just("bridge"), NAMES),
    st.tuples(st.just("veth"), NAMES, NAMES, SPACES),
    st.tuples(st.just("up"), NAMES, st.booleans()),
    st.tuples(st.just("mtu"), NAMES, st.sampled_from([1300, 9000])),
    st.tuples(st.just("alias"), NAMES, st.sampled_from(["", "mine"])),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("master"), NAMES, NAMES),
    st.tuples(st.just("free"), NAMES),
    st.tuples(st.just("hairpin"), NAMES, st.booleans()),
    st.tuples(st.just("move"), NAMES, SPACES, NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("address"), NAMES, INTERFACES, st.booleans()),
    st.tuples(st.just("no address"), NAMES, INTERFACES),
    st.tuples(st.just("route"), NAMES, DESTINATIONS, GATEWAYS, METRICS),
    st.tuples(st.just("replace"), NAMES, DESTINATIONS, GATEWAYS, METRICS),
    st.tuples(st.just("no route"), DESTINATIONS, GATEWAYS, METRICS),
)


# Links are named, so that indices need not agree.
VERBS = {
    "bridge": lambda net, paths, name: net.links.add(Bridge(name)),
    "veth": lambda net, paths, name, peer, space: net.links.add(Veth(name, peer, paths[space])),
    "up": lambda net, paths, name, up: net.links.change(name, up=up),
    "mtu": lambda net, paths, name, mtu: net.links.change(name, mtu=mtu),
    "alias": lambda net, paths, name, alias: net.links.change(name, alias=alias),
    "rename": lambda net, paths, name, new: net.links.change(at(net, name), name=new),
    "master": lambda net, paths, name, master: net.links.change(name, master=at(net, master)),
    "free": lambda net, paths, name: net.links.change(name, master=0),
    "hairpin": lambda net, paths, name, hairpin: net.links.set_port(at(net, name), hairpin=hairpin),
    "move": lambda net, paths, name, space, new: net.links.move(name, paths[space], new),
    "delete": lambda net, paths, name: net.links.delete(name),
    "address": lambda net, paths, name, it, route: net.addresses.add(at(net, name), it, prefix_route=route),
    "no address": lambda net, paths, name, it: net.addresses.delete(at(net, name), it),
    "route": lambda net, paths, name, to, via, metric: net.routes.add(Route(to, via, at(net, name), metric=metric)),
    "replace": lambda net, paths, name, to, via, metric: net.routes.replace(
        Route(to, via, at(net, name), metric=metric)
    ),
    "no route": lambda net, paths, to, via, metric: net.routes.delete(Route(to, via, metric=metric)),
}


def at(network, name: str) -> int:
    return network.links.get(name).ifindex


def outcome(network, paths, operation) -> str:
    try:
        verb, *said = operation
        VERBS[verb](network, paths, *said)
    except errors.LinuxError as error:
        return type(error).__name__
    return "done"


def seen(network) -> tuple:
    """All that can be told about a namespace, without indices."""
    links = {each.ifindex: each for each in network.links.list()}
    names = {index: each.name for index, each in links.items()}
    return (
        sorted(
            (each.name, each.kind, each.mtu, each.up, each.alias, each.hairpin, names.get(each.master, ""))
            for each in links.values()
        ),
        sorted(
            (names[each.ifindex], str(each.interface), each.protocol)
            for each in network.addresses.list()
            if each.interface.version == 4
        ),
        sorted(
            (
                str(each.destination),
                str(each.gateway),
                names.get(each.ifindex, ""),
                str(each.source),
                each.metric,
                each.scope,
            )
            for each in network.routes.list(4)
        ),
    )


COUNT = itertools.count()


def test_the_same_is_told_and_the_same_is_heard(real, tmp_path):
    @settings(max_examples=1000 if os.environ.get("PODWIRE_SOAK") else 25)
    @given(st.lists(st.tuples(SPACES, OPERATIONS), min_size=4, max_size=25))
    def tell(operations):
        directory = tmp_path / str(next(COUNT))
        made = [(kernel, kernel.namespaces(directory)) for kernel in (RealKernel(), MemoryKernel())]
        for _, namespaces in made:
            namespaces.create("a")
            namespaces.create("b")
        opened = [{each: kernel.network(namespaces.path(each)) for each in ("a", "b")} for kernel, namespaces in made]
        paths = {each: made[0][1].path(each) for each in ("a", "b")}
        try:
            for space, operation in operations:
                kernel, double = (outcome(each[space], paths, operation) for each in opened)
                assert kernel == double, (space, operation)
                for name in ("a", "b"):
                    assert seen(opened[0][name]) == seen(opened[1][name]), (space, operation)
        finally:
            for world in opened:
                for network in world.values():
                    network.close()
            for each in ("a", "b"):
                made[0][1].remove(each)

    tell()

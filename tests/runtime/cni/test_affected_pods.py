"""Pods affected by a change on the host: two at a bridge, one at a link of its own."""

import pytest

from podwire.linux.net import monitor
from podwire.linux.net.monitor import Changed
from podwire.linux.values import Link
from podwire.runtime.cni.affected_pods import AffectedPods


def link(ifindex, name, kind="veth", master=0, *, up=True):
    return Link(ifindex, name, kind, f"02:00:00:00:00:{ifindex:02x}", 1500, up, "up", master)


BRIDGE = link(5, "br0", "bridge")
VETHS = {"a": link(6, "veth-a", master=5), "b": link(7, "veth-b", master=5)}
LONE = link(9, "ptp-c")
OUT = link(2, "eth0", "")


def changed(link, gone=False, what=monitor.LINK, **changes):
    return Changed(what, gone, link.ifindex, link._replace(**changes))


def at(what, link, gone=True):
    return Changed(what, gone, link.ifindex)


def element(*comments, gone=True):
    return Changed(monitor.ELEMENT, gone, comments=comments)


@pytest.fixture
def affected():
    made = AffectedPods()
    made.set_links([OUT, BRIDGE, *VETHS.values(), LONE])
    for letter in "ab":
        made.add_pod(letter, ["br0", f"veth-{letter}"])
    made.add_pod("c", ["ptp-c"])
    return made


@pytest.mark.parametrize(
    ("change", "who"),
    [
        pytest.param(changed(VETHS["a"], up=False), "a", id="its link goes down"),
        pytest.param(changed(VETHS["a"], gone=True), "a", id="its link is gone"),
        pytest.param(changed(VETHS["a"], name="other"), "a", id="its link has another name"),
        pytest.param(changed(VETHS["a"], master=0), "a", id="its link leaves the bridge"),
        pytest.param(changed(VETHS["a"], mtu=1400), "a", id="its link has another MTU"),
        pytest.param(changed(VETHS["a"], alias="not ours"), "a", id="its link has another owner"),
        pytest.param(changed(VETHS["a"], state="down"), "", id="its link has no carrier for a moment"),
        pytest.param(changed(VETHS["a"], what=monitor.PORT), "a", id="its place in the bridge changes"),
        pytest.param(changed(BRIDGE, up=False), "ab", id="the bridge goes down"),
        pytest.param(changed(BRIDGE, gone=True), "ab", id="the bridge is gone"),
        pytest.param(changed(BRIDGE, mac="02:00:00:00:00:01", mtu=1400), "", id="the bridge takes what its ports have"),
        pytest.param(changed(link(20, "veth-new")), "", id="another pod comes"),
        pytest.param(changed(link(20, "veth-a")), "a", id="a link of that name is there again"),
        pytest.param(at(monitor.ADDRESS, BRIDGE), "ab", id="the bridge loses its address"),
        pytest.param(at(monitor.ADDRESS, OUT), "", id="the host loses an address"),
        pytest.param(at(monitor.NEXT_HOP, LONE), "c", id="the route to a pod is gone"),
        pytest.param(at(monitor.NEXT_HOP, LONE, gone=False), "c", id="the route to a pod is another one"),
        pytest.param(Changed(monitor.NEXT_HOP, True), "abc", id="a route by no link is gone"),
        pytest.param(at(monitor.TRAFFIC, VETHS["b"]), "b", id="a pod's traffic is not shaped any more"),
        pytest.param(Changed(monitor.RULE, True), "abc", id="a rule is gone"),
        pytest.param(Changed(monitor.PARAMETER), "abc", id="the host stops to forward"),
        pytest.param(element("token a eth0"), "a", id="a pod's element is gone"),
        pytest.param(element("token a eth0", "token c eth0", gone=False), "ac", id="elements of two pods are new"),
        pytest.param(element("token gone eth0"), "", id="the element of another pod is gone"),
        pytest.param(element("token a eth0", ""), "abc", id="an element that names nobody is gone"),
        pytest.param(element("", gone=False), "c", id="an element that names nobody is new: those that fail"),
        pytest.param(Changed(monitor.RULESET, True), "abc", id="a rule, chain or table is gone"),
        pytest.param(Changed(monitor.RULESET), "c", id="a rule, chain or table is new: those that fail"),
        pytest.param(Changed(monitor.ANYTHING), "abc", id="events were lost"),
    ],
)  # fmt: skip
def test_a_change_affected(affected, change, who):
    assert affected.of(change, failing={"c", "gone"}) == set(who)


def test_a_pod_that_left_is_not_concerned(affected):
    affected.remove_pod("a")
    affected.remove_pod("a")
    assert affected.of(Changed(monitor.ANYTHING), set()) == {"b", "c"}
    assert affected.of(changed(BRIDGE, up=False), set()) == {"b"}


def test_a_change_is_one_only_the_first_time(affected):
    down = changed(VETHS["a"], up=False)
    assert affected.of(down, set()) == {"a"}
    assert affected.of(down, set()) == set()
    assert affected.of(changed(VETHS["a"]), set()) == {"a"}, "and back"


def test_a_link_that_came_later_is_known_by_its_index_too(affected):
    affected.of(changed(link(30, "ptp-d")), set())
    affected.add_pod("d", ["ptp-d"])
    assert affected.of(Changed(monitor.NEXT_HOP, True, 30), set()) == {"d"}


def test_add_and_del_of_one_pod_cause_no_check_of_others(affected):
    """As the kernel tells them on a host with a bridge."""
    new = link(40, "veth-n", up=False)
    result = [
        changed(new), changed(new, up=True), changed(new, up=True, master=5), changed(BRIDGE, mtu=1400),
        changed(new, what=monitor.PORT), changed(BRIDGE, state="up"), at(monitor.NEXT_HOP, new, gone=False),
        element("token n eth0", gone=False), element("token n eth0"), at(monitor.NEXT_HOP, new),
        changed(new, gone=True, what=monitor.PORT), changed(BRIDGE, mtu=1500), changed(new, gone=True),
    ]  # fmt: skip
    assert [affected.of(item, set()) for item in result] == [set()] * len(result)

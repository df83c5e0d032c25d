"""Interfaces with leases: what a DHCP server gives is had before the pod starts, and followed while it runs."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.dradriver.attach.records import Terms
from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.settings import Made, Route


@pytest.mark.parametrize("device", ["nic0", "br0"])
def test_a_link_waits_on_the_host_for_the_answer_of_a_dhcp_server(host, device):
    host.nic()
    host.furnish()
    host.bridge()
    host.ip("link set nic0 down")
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    made = Made(kind="veth", bridge="br0") if device == "br0" else None
    allocation = host.allocation(device, made=made, dhcp=True, mac="02:00:00:00:00:77")
    (record,) = attachments.prepare([allocation])
    waiting = record.waiting_name if made else "nic0"
    (reported,) = host.ip(f"addr show {waiting}")
    assert ("UP" in reported["flags"], reported["address"]) == (True, "02:00:00:00:00:77")
    assert not made or reported["addr_info"] == []
    given = Route(destination=ip_network("10.60.0.0/16"), gateway=ip_address("10.50.0.1"))
    attachments.apply_terms(record.key, Terms(addresses=(ip_interface("10.50.0.2/24"),), routes=(given,)))
    (attached,) = host.attachments().attach("pod-uid", pod)
    assert attached.ips == (ip_interface("10.50.0.2/24"),)
    assert host.ip("route show 10.60.0.0/16", pod)[0]["gateway"] == "10.50.0.1"
    attachments.detach("pod-uid", pod)
    attachments.unprepare(allocation.claim.uid)
    host.settled(before)


LEASED = ip_interface("10.50.0.2/24")
LEASED_WAY = Route(destination=ip_network("10.60.0.0/16"), gateway=ip_address("10.50.0.1"), metric=2000)


def leased(host, **settings):
    """An interface in its pod, with a lease."""
    host.nic()
    attachments, pod = host.attachments(), host.pod()
    (record,) = attachments.prepare([host.allocation(dhcp=True, **settings)])
    attachments.apply_terms(record.key, Terms(addresses=(LEASED,), routes=(LEASED_WAY,), mtu=1350))
    attachments.attach("pod-uid", pod)
    return attachments, pod, record.key


def ways(host, pod):
    return {(item["dst"], item.get("gateway", "")) for item in host.ip("route show dev net1", pod)}


def test_an_interface_has_the_mtu_that_was_leased_and_the_host_its_own_again(host):
    attachments, pod, _ = leased(host)
    assert host.ip("link show net1", pod)[0]["mtu"] == 1350
    attachments.detach("pod-uid", pod)
    assert host.ip("link show nic0")[0]["mtu"] == 1400


@pytest.mark.parametrize(
    ("settings", "mtu", "becomes"),
    [
        pytest.param({}, 1300, 1300, id="another one"),
        pytest.param({}, None, 1400, id="none: that of the link"),
        pytest.param({"made": Made(kind="macvlan")}, 9000, 1350, id="more than the link can: what it has"),
        pytest.param({"mtu": 1450}, 1300, 1450, id="the claim names one"),
    ],
)
def test_the_mtu_follows_the_lease(host, settings, mtu, becomes):
    attachments, pod, key = leased(host, **settings)
    assert attachments.apply_terms(key, Terms(addresses=(LEASED,), routes=(LEASED_WAY,), mtu=mtu))
    assert host.ip("link show net1", pod)[0]["mtu"] == becomes


def test_routes_follow_the_lease_and_those_of_others_stay(host):
    attachments, pod, key = leased(host)
    host.ip("route add 10.61.0.0/16 via 10.50.0.9 dev net1", pod)
    before = ways(host, pod)
    moved = Route(destination=LEASED_WAY.destination, gateway=ip_address("10.50.0.7"), metric=2000)
    more = Route(destination=ip_network("10.62.0.0/16"), gateway=ip_address("10.50.0.7"), metric=2000)
    assert attachments.apply_terms(key, Terms(addresses=(LEASED,), routes=(moved, more), mtu=1350))
    assert ways(host, pod) - before == {("10.60.0.0/16", "10.50.0.7"), ("10.62.0.0/16", "10.50.0.7")}
    assert before - ways(host, pod) == {("10.60.0.0/16", "10.50.0.1")}
    assert not attachments.apply_terms(key, Terms(addresses=(LEASED,), routes=(moved, more), mtu=1350))


def test_lost_address_is_removed_and_the_next_one_brings_back_all_routes(host):
    named = Route(destination=ip_network("10.63.0.0/16"), gateway=ip_address("10.50.0.3"))
    attachments, pod, key = leased(host, routes=(named,))
    assert attachments.apply_terms(key, Terms(lapse="the server said no"))
    (reported,) = attachments.attached("pod-uid")
    assert (reported.ips, reported.lapse) == ((), "the server said no")
    assert host.ip("-4 addr show dev net1", pod) == []
    assert ways(host, pod) == set()
    other = ip_interface("10.50.0.5/24")
    assert attachments.apply_terms(key, Terms(addresses=(other,), routes=(LEASED_WAY,), mtu=1350))
    assert ways(host, pod) >= {("10.60.0.0/16", "10.50.0.1"), ("10.63.0.0/16", "10.50.0.3")}
    (reported,) = host.ip("-4 addr show dev net1", pod)
    assert [item["local"] for item in reported["addr_info"]] == ["10.50.0.5"]


def test_no_pod_starts_with_a_lease_that_is_lost(host):
    host.nic()
    attachments, pod = host.attachments(), host.pod()
    (record,) = attachments.prepare([host.allocation(dhcp=True)])
    attachments.apply_terms(record.key, Terms(lapse="the server said no"))
    with pytest.raises(Refused, match=r"^interface.dhcp: device nic0: the server said no$"):
        attachments.attach("pod-uid", pod)
    attachments.apply_terms(record.key, Terms(addresses=(LEASED,)))
    (attached,) = attachments.attach("pod-uid", pod)
    assert (attached.ips, attached.lapse) == ((LEASED,), "")


def test_terms_that_the_kernel_rejects_are_reported_and_retried(host):
    attachments, _, key = leased(host)
    bad = Route(destination=ip_network("10.64.0.0/16"), gateway=ip_address("192.0.2.1"), metric=2000)
    assert attachments.apply_terms(key, Terms(addresses=(LEASED,), routes=(bad,)))
    (reported,) = attachments.attached("pod-uid")
    assert "the lease cannot be applied: add routes" in reported.lapse
    assert attachments.apply_terms(key, Terms(addresses=(LEASED,)))
    (reported,) = attachments.attached("pod-uid")
    assert reported.lapse == ""

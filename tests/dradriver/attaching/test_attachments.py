"""Devices that move, with real links and real packets."""

from ipaddress import ip_interface

import pytest

from podwire.dradriver.settings import Made


def test_a_link_moves_with_all_that_it_has_and_comes_back_as_it_was(host):
    host.nic()
    host.furnish()
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    (record,) = attachments.prepare([host.order()])
    assert host.dump() == before
    (attached,) = attachments.attach("pod-uid", pod)
    assert (attached.interface, attached.mac) == ("net1", "02:00:00:00:00:01")
    assert attachments.is_attached("pod-uid", pod)
    assert attached.ips == tuple(map(ip_interface, ("10.9.1.1/24", "10.9.1.7/24", "fd09::1/96")))
    there = host.ip("addr show dev net1", pod)[0]
    assert (there["mtu"], there["txqlen"], there["operstate"]) == (1400, 777, "UP")
    host.ip("addr add 10.9.1.254/24 dev far0", host.far)
    host.say(pod, host.far, "10.9.1.254")
    (back,) = attachments.detach("pod-uid", pod)
    assert back.lost == ()
    assert not attachments.is_attached("pod-uid", pod)
    host.settled(before)
    attachments.unprepare(record.order.claim.uid)
    assert attachments.records() == ()


MADE = {
    "macvlan": Made(kind="macvlan", mode="bridge"),
    "veth": Made(kind="veth", bridge="br0"),
    "vxlan": Made(kind="vxlan", vni=42, remote="10.9.1.254", port=4790),
    "tap": Made(kind="tap"),
}


@pytest.mark.parametrize("kind", MADE)
def test_an_interface_is_made_for_a_claim_and_goes_with_it(host, kind):
    host.nic()
    host.bridge()
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    device = "br0" if kind == "veth" else "nic0"
    order = host.order(device, made=MADE[kind], addresses=(ip_interface("10.9.1.5/24"),), mtu=1300, gso_max_size=40000)
    (record,) = attachments.prepare([order])
    (attached,) = attachments.attach("pod-uid", pod)
    (there,) = host.ip("addr show dev net1", pod)
    assert (there["mtu"], there["address"], there["gso_max_size"]) == (1300, attached.mac, 40000)
    assert there["ifalias"] == record.tag
    assert there["addr_info"][0]["local"] == "10.9.1.5"
    attachments.detach("pod-uid", pod)
    host.settled(before)
    assert [each["ifname"] for each in host.ip("link show", pod)] == ["lo"]
    attachments.attach("pod-uid", pod)
    assert host.ip("addr show dev net1", pod)[0]["address"] == attached.mac
    attachments.unprepare(order.claim.uid)
    host.settled(before)

"""Devices that move, with real links and real packets."""

import ctypes
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import pytest

from podwire.dradriver.attach.attachments import AttachFailed
from podwire.dradriver.attach.records import ATTACHED, PREPARED
from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.settings import Made, Route, Vrf
from podwire.durable.records import NewerFormat
from podwire.linux import syscalls
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.wire import Request, nested, u32


def test_link_moves_with_its_settings_and_is_restored(host):
    host.nic()
    host.furnish()
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    (record,) = attachments.prepare([host.allocation()])
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
    attachments.unprepare(record.allocation.claim.uid)
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
    allocation = host.allocation(
        device, made=MADE[kind], addresses=(ip_interface("10.9.1.5/24"),), mtu=1300, gso_max_size=40000
    )
    (record,) = attachments.prepare([allocation])
    (attached,) = attachments.attach("pod-uid", pod)
    (there,) = host.ip("addr show dev net1", pod)
    assert (there["mtu"], there["address"], there["gso_max_size"]) == (1300, attached.mac, 40000)
    assert there["ifalias"] == record.tag
    assert there["addr_info"][0]["local"] == "10.9.1.5"
    attachments.detach("pod-uid", pod)
    host.settled(before)
    assert [item["ifname"] for item in host.ip("link show", pod)] == ["lo"]
    attachments.attach("pod-uid", pod)
    assert host.ip("addr show dev net1", pod)[0]["address"] == attached.mac
    attachments.unprepare(allocation.claim.uid)
    host.settled(before)


UNREACHABLE = (Route(destination=ip_network("10.60.0.0/16"), gateway=ip_address("10.66.0.1")),)


def test_all_devices_of_a_pod_or_none(host):
    host.nic()
    host.nic("nic1", "far1", "02:00:00:00:00:02")
    host.bridge()
    host.furnish()
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    allocations = [
        host.allocation(),
        host.allocation("br0", made=Made(kind="veth", bridge="br0"), name="net2"),
        host.allocation("nic1", name="net3", routes=UNREACHABLE),
    ]
    attachments.prepare(allocations)
    with pytest.raises(AttachFailed, match=r"device nic1: add routes: add route 10\.60\.0\.0/16.*unreachable") as error:
        attachments.attach("pod-uid", pod)
    assert (error.value.device, error.value.step) == ("nic1", "add routes")
    host.settled(before)
    assert [item["ifname"] for item in host.ip("link show", pod)] == ["lo"]
    assert not attachments.is_attached("pod-uid", pod)
    document = {record.allocation.device.name: (record.stage, record.failure) for record in attachments.records()}
    assert document["nic0"] == document["br0"] == (PREPARED, "")
    assert document["nic1"][1].startswith("add routes: add route 10.60.0.0/16")


def test_a_name_that_the_pod_has_already_is_a_failure(host):
    host.nic()
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    host.ip("link add net1 type bridge", pod)
    attachments.prepare([host.allocation()])
    with pytest.raises(AttachFailed, match=r"move the link into the pod.*another link has this name there"):
        attachments.attach("pod-uid", pod)
    host.settled(before)


def test_each_call_can_be_made_again_and_again(host):
    host.nic()
    host.furnish()
    before = host.dump()
    attachments, pod = host.attachments(), host.pod()
    allocation = host.allocation()
    assert attachments.prepare([allocation]) == attachments.prepare([allocation]) == attachments.records()
    assert (
        attachments.attach("pod-uid", pod)
        == attachments.attach("pod-uid", pod)
        == host.attachments().attach("pod-uid", pod)
    )
    assert attachments.prepare([allocation])[0].stage == ATTACHED
    for _ in range(3):
        attachments.detach("pod-uid", pod)
    host.settled(before)
    attachments.attach("pod-uid", pod)
    for _ in range(3):
        host.attachments().unprepare(allocation.claim.uid)
    attachments.unprepare("unknown")
    assert attachments.detach("unknown", None) == attachments.attach("unknown", pod) == ()
    host.settled(before)
    assert not any(path for path in (host.state / "records").iterdir())


def test_pod_with_a_new_sandbox_gets_its_devices_again(host):
    host.nic()
    host.furnish()
    attachments, first, second = host.attachments(), host.pod("first"), host.pod("second")
    attachments.prepare([host.allocation()])
    attachments.attach("pod-uid", first)
    attachments.attach("pod-uid", second)
    assert attachments.is_attached("pod-uid", second)
    assert not attachments.is_attached("pod-uid", first)
    assert [item["ifname"] for item in host.ip("link show", first)] == ["lo"]
    assert host.ip("addr show dev net1", second)[0]["addr_info"][0]["local"] == "10.9.1.1"


@pytest.mark.parametrize("change", ["name other", "alias mine", "address 02:99:99:99:99:99", "mtu 1200"])
def test_link_is_restored_whatever_its_pod_did_to_it(host, change):
    host.nic()
    host.furnish()
    before = host.dump()
    attachments, pod = host.attached()
    host.ip("link set net1 down", pod)
    host.ip(f"link set net1 {change}", pod)
    attachments.detach("pod-uid", pod)
    host.settled(before)


def test_a_link_that_a_pod_marks_as_ours_is_not_taken(host):
    host.nic()
    before = host.dump()
    attachments, pod = host.attached()
    (record,) = attachments.records()
    host.ip("link add aaa type veth peer name bbb", pod)
    for name in ("aaa", "bbb"):
        host.ip(f"link set {name} alias {record.tag}", pod)
    attachments.detach("pod-uid", pod)
    host.settled(before)
    assert {item["ifname"] for item in host.ip("link show", pod)} == {"lo", "aaa", "bbb"}


def test_link_whose_name_is_taken_is_restored_under_another_and_reported(host):
    host.nic()
    attachments, pod = host.attached()
    (record,) = attachments.records()
    host.ip("link add nic0 type bridge")
    (back,) = attachments.detach("pod-uid", pod)
    assert back.lost == (f"the name nic0: another link has it, so the link is called {record.waiting_name}",)
    assert host.ip(f"link show {record.waiting_name}")[0]["address"] == "02:00:00:00:00:01"


def test_veth_that_ended_with_its_pod_is_reported_as_lost(host):
    host.nic()
    host.nic("nic1", "far1", "02:00:00:00:00:02")
    attachments, pod = host.attached(host.allocation(), host.allocation("nic1", made=Made(kind="macvlan"), name="net2"))
    host.ip("link del net1", pod)
    host.remove()
    lost = {item.allocation.device.name: item.lost for item in attachments.detach("pod-uid", pod)}
    assert lost == {"nic0": ("nic0: the link is gone, with the pod's namespace",), "nic1": ()}
    with pytest.raises(AttachFailed, match="the link nic0 is not on the host"):
        attachments.attach("pod-uid", host.pod())


def test_many_pods_get_theirs_at_the_same_time(host):
    host.bridge()
    before = host.dump()
    attachments, made = host.attachments(), Made(kind="veth", bridge="br0")
    pods = {f"pod-{number}": host.pod(f"pod-{number}") for number in range(8)}
    allocations = {uid: host.allocation("br0", made=made, pod=uid, share=uid, name="net1") for uid in pods}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda allocation: attachments.prepare([allocation]), allocations.values()))
        attached = list(threads.map(attachments.attach, pods.keys(), pods.values()))
        assert len({each.mac for (each,) in attached}) == 8
        assert all(host.ip("link show net1", netns) for netns in pods.values())
        list(threads.map(attachments.detach, pods.keys(), pods.values()))
        list(threads.map(attachments.unprepare, (allocation.claim.uid for allocation in allocations.values())))
    assert attachments.records() == ()
    host.settled(before)


REFUSALS = {
    "the uplink": (lambda host: host.allocation("nic0"), "the host's default route goes through nic0"),
    "the loopback": (lambda host: host.allocation("lo"), "the loopback interface stays on the host"),
    "on the loopback": (
        lambda host: host.allocation("lo", made=Made(kind="macvlan")),
        "cannot be made on the loopback",
    ),
    "a bridge": (lambda host: host.allocation("br0"), "br0 is a bridge, which cannot be moved"),
    "a port": (lambda host: host.allocation("port0"), "port0 is a port of br0"),
    "nothing": (lambda host: host.allocation("nic7"), "the link nic7 is not on the host"),
    "on nothing": (lambda host: host.allocation("nic7", made=Made(kind="macvlan")), "the link nic7 is not on the host"),
    "a veth on a cable": (
        lambda host: host.allocation("nic1", made=Made(kind="veth", bridge="nic1")),
        "a veth needs a bridge, and nic1 is not a bridge",
    ),
    "a vlan": (lambda host: host.allocation("nic1", made=Made(kind="vlan", vlan=5)), "without CONFIG_VLAN_8021Q"),
    "an ipvlan": (lambda host: host.allocation("nic1", made=Made(kind="ipvlan")), "without CONFIG_IPVLAN"),
    "a VRF": (lambda host: host.allocation("nic1", vrf=Vrf(name="red", table=1001)), "without CONFIG_NET_VRF"),
    "a feature that is fixed": (
        lambda host: host.allocation("nic1", features={"loopback": True}),
        "ethtool.features: loopback cannot be changed on nic1",
    ),
    "a flag that is not": (
        lambda host: host.allocation("nic1", private_flags={"magic": True}),
        "ethtool.privateFlags: nic1 has no flag magic",
    ),
    "too large": (
        lambda host: host.allocation("br0", made=Made(kind="veth", bridge="br0"), mtu=9000),
        "interface.mtu: 9000 is more than br0 has, 1500",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_impossible_attachment_is_refused_before_anything_is_changed(host, case):
    host.nic()
    host.nic("nic1", "far1", "02:00:00:00:00:02")
    host.bridge()
    host.ip("addr add 10.9.1.1/24 dev nic0")
    host.ip("route add default via 10.9.1.254 dev nic0")
    before = host.dump()
    attachments = host.attachments()
    make, reported = REFUSALS[case]
    fine = host.allocation("nic1", made=Made(kind="macvlan"), share="other")
    with pytest.raises(Refused, match=reported):
        attachments.prepare([fine, make(host)])
    assert attachments.records() == ()
    assert host.dump() == before


def test_a_device_is_for_one_claim_at_a_time(host):
    host.nic()
    attachments = host.attachments()
    attachments.prepare([host.allocation()])
    with pytest.raises(Refused, match="device nic0 is prepared for claim default/claim-1"):
        attachments.prepare([host.allocation(pod="other")])


def test_a_link_that_the_host_came_to_need_stays(host):
    host.nic()
    host.furnish()
    attachments, pod = host.attachments(), host.pod()
    attachments.prepare([host.allocation()])
    host.ip("route add default via 10.9.1.254 dev nic0")
    before = host.dump()
    with pytest.raises(AttachFailed, match="the host's default route goes through nic0"):
        attachments.attach("pod-uid", pod)
    host.settled(before)


def test_reconcile_catches_up_with_missed_hooks(host):
    host.nic()
    host.nic("nic1", "far1", "02:00:00:00:00:02")
    host.furnish()
    before = host.dump()
    attachments, gone, lives, bare = host.attachments(), host.pod("gone"), host.pod("lives"), host.pod("bare")
    mac = Made(kind="macvlan")
    attachments.prepare([host.allocation(pod="gone")])
    attachments.prepare([host.allocation("nic1", made=mac, pod="lives", share="1")])
    attachments.prepare([host.allocation("nic1", made=mac, pod="bare", share="2")])
    attachments.attach("gone", gone)
    attachments.attach("lives", lives)
    index = host.ip("link show net1", lives)[0]["ifindex"]
    changed = host.attachments().reconcile({"lives": lives, "bare": bare, "unknown": lives})
    assert {item.allocation.pod.uid: item.stage for item in changed} == {"gone": PREPARED, "bare": ATTACHED}
    assert host.ip("link show net1", lives)[0]["ifindex"] == index
    assert host.attachments().is_attached("bare", bare)
    assert host.attachments().reconcile({"lives": lives, "bare": bare}) == ()
    host.attachments().reconcile({})
    host.settled(before)


def test_interface_of_an_unknown_claim_is_deleted(host):
    host.nic()
    host.bridge()
    before = host.dump()
    host.attached(host.allocation("br0", made=Made(kind="veth", bridge="br0")), host.allocation(name="net2"))
    for path in (host.state / "records" / "pod-uid").iterdir():
        if "br0" in path.name:
            path.unlink()
    attachments = host.attachments()
    attachments.reconcile({})
    assert [attachments.orphans.recover(orphan) for orphan in attachments.orphans.on_host()] == [False]
    host.settled(before)


def test_after_a_boot_nothing_is_attached_and_snapshots_are_taken_again(host):
    host.nic()
    attachments, pod = host.attachments(boot="one"), host.pod()
    attachments.prepare([host.allocation()])
    attachments.attach("pod-uid", pod)
    attachments.detach("pod-uid", pod)
    attachments.attached_file("pod-uid").write_text("4:4026531840\n")
    host.ip("link set nic0 mtu 1450")
    before = host.dump()
    later = host.attachments(boot="two")
    assert not later.attached_file("pod-uid").exists()
    later.attach("pod-uid", pod)
    later.detach("pod-uid", pod)
    host.settled(before)


def test_a_record_of_a_newer_version_is_refused_and_a_damaged_one_put_aside(host):
    host.nic()
    attachments, pod = host.attachments(), host.pod()
    attachments.prepare([host.allocation()])
    (path,) = (host.state / "records" / "pod-uid").glob("*.json")
    text = path.read_text()
    path.write_text(text.replace('"format":2', '"format":3'))
    with pytest.raises(NewerFormat, match=r"written by a newer podwire \(format 3; this one supports up to 2\)"):
        attachments.attach("pod-uid", pod)
    path.write_text(text.replace("nic0", "nic9", 1))
    assert attachments.records() == ()
    assert path.with_name(f"{path.name}.damaged").exists()
    path.write_text(text + '\n{"format":2,"checksum":"00000000","record":{"sta')
    assert [record.stage for record in attachments.records()] == [PREPARED]


def test_the_file_that_others_read_names_the_namespace(host):
    host.nic()
    attachments, pod = host.attached()
    found = Path(pod).stat()
    assert attachments.attached_file("pod-uid").read_text() == f"{found.st_dev}:{found.st_ino}\n"


def test_ebpf_programs_are_detached_and_reported_as_lost(host):
    host.nic()
    attachments, pod = host.attachments(), host.pod()
    attachments.prepare([host.allocation(detach_ebpf=True)])
    descriptor = xdp_on("nic0")
    try:
        attachments.attach("pod-uid", pod)
        assert "xdp" not in host.run("ip link show net1", pod)
        (back,) = attachments.detach("pod-uid", pod)
        assert back.lost == ("1 eBPF programs, which were detached",)
    finally:
        os.close(descriptor)


def xdp_on(name):
    """A program that does nothing: r0 = 2; exit."""
    code = ctypes.create_string_buffer(bytes.fromhex("b700000002000000" + "9500000000000000"), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    asked = struct.pack("=IIQQ", 6, 2, ctypes.addressof(code), ctypes.addressof(licence)).ljust(128, b"\0")
    buffer = ctypes.create_string_buffer(asked, 128)
    number = {"x86_64": 321}.get(os.uname().machine, 280)
    descriptor = syscalls.syscall(number, "load a program", 5, ctypes.addressof(buffer), 128)
    with Netlink() as netlink, KernelNetwork() as network:
        head = struct.pack("=BxHiII", 0, 0, network.links.get(name).ifindex, 0, 0)
        netlink.do(Request(19, 0, head + nested(43, u32(1, descriptor), u32(3, 2)), "attach a program", {}))
    return descriptor

"""A driver killed at any step, and another one after it: all devices are in the pod, or the host is as it was."""

import os
import random
import subprocess
import sys
import time
from ipaddress import ip_interface, ip_network

import msgspec
import pytest

from podwire.dradriver.attach import steps
from podwire.dradriver.parameters.settings import Made, Rule
from podwire.failpoints import KNOWN

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run; set it to repeat a run."""

CHILD = """
import sys
from pathlib import Path
import msgspec
from podwire.dradriver.attach.attachments import Attachments
from ipaddress import ip_interface
from podwire.dradriver.attach.records import Terms
from podwire.dradriver.claims.allocations import Allocation
from podwire.dradriver.parameters.settings import decode_address
state, verb, pod, allocations = sys.argv[1:]
attachments = Attachments(Path(state))
match verb:
    case "prepare":
        attachments.prepare(msgspec.json.decode(allocations, type=list[Allocation], dec_hook=decode_address))
    case "attach":
        attachments.attach("pod-uid", pod)
    case "follow":
        for record in attachments.records():
            if record.allocation.settings.dhcp:
                attachments.apply_terms(record.key, Terms(addresses=(ip_interface("10.6.0.1/24"),), mtu=1400))
                attachments.apply_terms(record.key, Terms(addresses=(ip_interface("10.6.0.2/24"),), mtu=1300))
    case "detach":
        attachments.detach("pod-uid", pod)
"""

INTO = ("begun", "down", "moved", "made", "sysctls", "addresses", "up", "features", "rules", "neighbours", "routes")
CASES = [
    *(("prepare", name) for name in ("recorded", "waiting")),
    *(("attach", name) for name in (*INTO, "shaped", "complete", "noted")),
    *(("follow", name) for name in ("mtu", "taken-away")),
    *(
        ("detach", name)
        for name in ("untold", "queue-deleted", "rules-deleted", "returned", "deleted", "restored", "back")
    ),
]
AFTER = ("the pod lives", "the pod is gone", "its namespace is gone")
ALL = [(*case, after) for case in CASES for after in AFTER]
SAMPLE = ALL if SOAK else random.Random(SEED).sample(ALL, 6)


def test_every_step_is_killed_after():
    """But for those that this kernel cannot do, and those that hardware would need."""
    declared = {item.done for item in steps.Step.__subclasses__()}
    document = {f"network-driver.{each}" for _, each in CASES}
    assert declared - document == {f"network-driver.{name}" for name in ("vrf", "vrf-deleted", "programs")}
    assert document <= KNOWN.keys()


def allocations(host):
    """Devices of all kinds, whose ways have all steps between them."""
    veth, macvlan = Made(kind="veth", bridge="br0"), Made(kind="macvlan")
    return [
        host.allocation(
            arp_ignore=1, features={"rx-gro": True}, rules=(Rule(priority=9, table=9, source=ip_network("::/0")),)
        ),
        host.allocation(
            "nic1", made=macvlan, name="net2", bits_per_second=10**9, addresses=(ip_interface("10.7.0.1/24"),)
        ),
        host.allocation("br0", made=veth, name="net3", bits_per_second=10**9, addresses=(ip_interface("10.8.0.1/24"),)),
        host.allocation("br0", made=veth, name="net4", dhcp=True, share="share-2"),
    ]


def killed(host, verb, pod, wanted, at=""):
    """A driver that lives for one call, or dies in it."""
    output = msgspec.json.encode(wanted, enc_hook=str).decode()
    env = {**os.environ, "PODWIRE_FAILPOINTS": f"network-driver.{at}=kill" if at else ""}
    command = [sys.executable, "-c", CHILD, str(host.state), verb, pod, output]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (-9 if at else 0), done.stderr


@pytest.mark.parametrize(("verb", "at", "after"), SAMPLE)
def test_a_driver_that_is_killed_is_followed_by_one_that_finishes_or_undoes(host, verb, at, after):
    host.nic()
    host.nic("nic1", "far1", "02:00:00:00:00:02")
    host.bridge()
    host.furnish()
    before, pod, wanted = host.dump(), host.pod(), allocations(host)
    for entry in ("prepare", "attach", "follow", "detach"):
        killed(host, entry, pod, wanted, at if entry == verb else "")
        if entry == verb:
            break
    next_one = host.attachments()
    if after == "the pod lives":
        next_one.prepare(wanted)
        next_one.reconcile({"pod-uid": pod})
        assert next_one.is_attached("pod-uid", pod)
        assert {item["ifname"] for item in host.ip("link show", pod)} >= {"lo", "net1", "net2", "net3", "net4"}
        assert host.ip("addr show dev net1", pod)[0]["addr_info"][0]["local"] == "10.9.1.1"
        next_one.detach("pod-uid", pod)
    else:
        whole_is_inside = any(item["ifname"] == "net1" for item in host.ip("link show", pod))
        if after == "its namespace is gone":
            host.remove()
        next_one.reconcile({})
        if after == "its namespace is gone" and whole_is_inside:
            lost = [record.lost for record in next_one.records() if record.allocation.device.name == "nic0"]
            assert lost == [("nic0: the link is gone, with the pod's namespace",)]
            return
    for entry in wanted:
        next_one.unprepare(entry.claim.uid)
    host.settled(before)
    if after != "its namespace is gone":
        assert [item["ifname"] for item in host.ip("link show", pod)] == ["lo"]

"""Kubelet, runtime and driver die, drivers hand over, claims go, the node reboots: no pod is bare, no device in two
pods, no address given twice, and in the end the links are as they were."""

import os
import random
import signal
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
CONFIG = {"pools": {"lab": {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.100", "rangeEnd": "10.9.0.199"}}}
KILLS = 12
"""In one burst."""
LANS = tuple(f"lan{number}" for number in range(6))


@pytest.fixture(scope="module")
def running_stage(empty_stage):
    made = empty_stage
    made.up(config=CONFIG)
    for lan in LANS:
        made.veth(lan)
    made.driver.start()
    made.offered(*LANS)
    return made


def pairs(stage, claim, name):
    """So many claims for any of the links, and as many pods; their names."""
    names = [f"{name}-{number}" for number in range(len(LANS))]
    claims = [claim(name, *LANS, addressPool="lab") for name in names]
    return names, [*claims, *(stage.pod(name, name) for name in names)]


def apart(stage, names):
    """Each pod has one device and one address that nobody else has."""
    devices = [device for name in names for device in stage.given(name)]
    assert len(devices) == len(set(devices)) == len(names)
    published = [stage.claimed_devices(name, "True", "Attached")[0]["networkData"]["ips"][0] for name in names]
    assert len(set(published)) == len(names)
    inside = [stage.look(name, "-4 addr show dev net1")[0]["addr_info"][0]["local"] for name in names]
    assert [f"{item}/24" for item in inside] == published


def test_a_new_driver_takes_over_while_pods_start(stage, claim):
    before = stage.dump("lan")
    stage.driver.stop()
    old, new = stage.another("old"), stage.another("new")
    old.start("--pod-uid", uuid.uuid4())
    names, wanted = pairs(stage, claim, "rolling")
    half = len(LANS) // 2
    claims, pods = wanted[: len(LANS)], wanted[len(LANS) :]
    with stage.cluster.applying(*claims, *pods[:half]):
        new.start("--pod-uid", uuid.uuid4())
    with stage.cluster.applying(*pods[half:]):
        assert old.stop() == 0
    stage.ready(*names)
    apart(stage, names)
    stage.deleted(*names)
    stage.as_before(before, "lan")
    assert new.stop() == 0
    stage.never_bare(*names)


@pytest.mark.parametrize("component", ["kubelet", "runtime"])
def test_kubelet_and_runtime_are_killed_while_pods_start_and_end(stage, claim, component):
    before = stage.dump("lan")
    names, wanted = pairs(stage, claim, f"kill-{component}")
    deaths = stage.cluster.restarts(component)
    with stage.cluster.applying(*wanted):
        stage.cluster.eventually(stage.cluster.sandboxes, "the first sandbox is made")
        stage.cluster.signal(component)
    stage.cluster.eventually(lambda: stage.cluster.restarts(component) > deaths and stage.cluster.is_up(), "it is back")
    stage.ready(*names)
    apart(stage, names)
    stage.cluster.output("delete", "pods", *names, "--wait=false")
    stage.cluster.signal(component)
    stage.cluster.eventually(lambda: stage.cluster.pods() == {}, "they are gone", stage.logs)
    stage.as_before(before, "lan")
    assert " bare" not in stage.log_of_pods()


def test_no_kill_allocates_a_device_twice_or_leaves_leftovers(stage, claim):
    """Driver, kubelet and runtime, again and again at any moment, while pods come and go.

    The kills come in bursts: on a busy machine a driver takes longer to start than the time between two kills, so that
    without an end of them no pod would ever start.
    """
    before, chance = stage.dump("lan"), random.Random(SEED)

    def burst():
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.5, 2))
            if chance.choice(["driver", "driver", "kubelet", "runtime"]) == "driver":
                stage.driver.kill()
                stage.driver.start(ready=False)
            else:
                stage.cluster.signal(chance.choice(["kubelet", "runtime"]))

    try:
        with ThreadPoolExecutor(1) as killer:
            for number in range(4 if SOAK else 1):
                names, manifests = pairs(stage, claim, f"any-{number}")
                kills = killer.submit(burst)
                stage.cluster.apply(*manifests)
                kills.result()
                stage.ready(*names)
                apart(stage, names)
                kills = killer.submit(burst)
                stage.cluster.delete(*names)
                kills.result()
    finally:
        stage.driver.kill()  # a process ends with the thread that started it
        stage.driver.start(ready=False)
    stage.cluster.eventually(lambda: stage.cluster.pods() == {} and stage.cluster.is_up(), "all is over", stage.logs)
    stage.driver.ready()
    stage.as_before(before, "lan")
    assert " bare" not in stage.log_of_pods()
    kept = stage.cluster.prefix / "var/lib/podwire/network-driver"
    stage.cluster.eventually(lambda: not left(kept), "nothing is left", lambda: str(left(kept)))
    assert stage.cluster.leakcheck() == []


def left(state):
    """The driver's records of claims and pods."""
    places = ("records/*/*.json", "attached/*", "listed/*.json", "leases/*.json")
    return [str(found) for path in places for found in state.glob(path)]


def test_claims_that_are_deleted_under_their_pods_go_with_them(stage, claim):
    before = stage.dump("lan")
    stage.run(claim("gone", "lan0", addressPool="lab"), stage.pod("gone", "gone"))
    stage.cluster.output("delete", "resourceclaim", "gone", "--wait=false")
    assert stage.inside("gone", "cat /sys/class/net/net1/address")
    stage.driver.kill()
    stage.driver.start()
    stage.deleted("gone")
    stage.cluster.eventually(lambda: stage.cluster.get("resourceclaim", "gone") is None, "the claim is gone")
    stage.as_before(before, "lan")
    stage.never_bare("gone")


def test_after_a_reboot_pods_have_their_interfaces_again(own_stage, claim):
    stage = own_stage
    stage.up(config=CONFIG)
    stage.veth("lan0", "192.0.2.1/24")
    stage.driver.start()
    stage.offered("lan0")
    stage.run(claim("kept", "lan0"), stage.pod("kept", "kept"))
    stage.cluster.reboot()
    stage.driver.kill()
    stage.cluster.up()
    stage.veth("lan0", "192.0.2.1/24")
    stage.driver.start()
    stage.cluster.eventually(lambda: stage.log_of_pods().count("kept attached") == 2, "it runs again", stage.logs)
    stage.ready("kept")
    assert stage.look("kept", "-4 addr show dev net1")[0]["addr_info"][0]["local"] == "192.0.2.1"
    stage.deleted("kept")
    stage.cluster.eventually(lambda: "lan0" in stage.dump("lan")["links"], "it is on the host", stage.logs)
    assert " bare" not in stage.log_of_pods()


def test_a_driver_stopped_while_pods_end_restores_their_links_when_it_resumes(stage, claim):
    before = stage.dump("lan")
    stage.run(claim("frozen", "lan1", addressPool="lab"), stage.pod("frozen", "frozen"))
    [sandbox] = stage.cluster.sandboxes()["frozen"]
    netns = Path(stage.cluster.cri("PodSandboxStatus", pod_sandbox_id=sandbox, verbose=True).info["netns"])

    def there():
        return netns.name in stage.node("ls", netns.parent).split()

    assert there()
    stage.driver.signal(signal.SIGSTOP)
    stage.cluster.delete("frozen")
    stage.cluster.eventually(lambda: not there(), "the runtime goes on without the driver", stage.logs)
    stage.driver.signal(signal.SIGCONT)
    stage.as_before(before, "lan")
    stage.never_bare("frozen")

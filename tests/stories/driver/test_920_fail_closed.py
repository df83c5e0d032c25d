"""No pod starts bare: the driver is away, stopped, slow or killed at any step; pods wait, say why, and start by
themselves when it is back."""

import os
import random
import signal
import time

import pytest

import podwire.cluster.network_driver  # noqa: F401 - declares the failpoints
from podwire.failpoints import KNOWN

INTO = (
    "claim-read recorded prepared cdi-written begun down moved made sysctls addresses up features rules neighbours "
    "routes shaped complete noted attached"
)
BACK = "untold queue-deleted rules-deleted returned deleted restored back detached unprepared"
POINTS = [
    *(("starts", f"network-driver.{part}") for part in INTO.split()),
    *(("starts", name) for name in ("addresses.chosen", "addresses.written")),
    *(("ends", f"network-driver.{part}") for part in BACK.split()),
]
SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run; set it to repeat a run."""
CONFIG = {
    "shared": [{"interface": "up1", "bandwidth": "1G"}],
    "pools": {"lab": {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.100", "rangeEnd": "10.9.0.199"}},
}
MINE = ("lan", "up1", "br0")
NETWORK = "net1 net2 net3"


def sample():
    chance = random.Random(SEED)
    return [chance.choice([point for point in POINTS if point[0] == verb]) for verb in ("starts", "starts", "ends")]


@pytest.fixture(scope="module")
def running_stage(empty_stage):
    made = empty_stage
    made.up(config=CONFIG)
    made.veth("lan1", "192.0.2.1/24")
    made.batch("neigh add 192.0.2.7 lladdr 02:00:00:00:00:07 dev lan1 nud permanent")
    made.veth("up1")
    made.bridge("br0")
    made.driver.start()
    made.offered("lan1", "up1", "br0")
    return made


def of_all_kinds(claim, name):
    """A whole link, a macvlan with a bandwidth, a veth on a bridge with an address of a pool: among them, all steps."""
    rules = [{"priority": 900, "table": 90, "source": "192.0.2.1/32"}]
    routes = [{"destination": "10.60.0.0/16", "gateway": "192.0.2.9"}]
    features = {"features": {"gro": True}}
    return (
        claim(f"{name}-whole", "lan1", arpIgnore=1, rules=rules, routes=routes, ethtool=features),
        claim(
            f"{name}-part", "up1", shared=True, bandwidth="10M", name="net2", kind_="macvlan", addresses=["10.7.0.1/24"]
        ),
        claim(f"{name}-veth", "br0", shared=True, name="net3", kind_="veth", addressPool="lab"),
    )


def claims_of(name):
    return (f"{name}-whole", f"{name}-part", f"{name}-veth")


def pod_with_all(stage, claim, name):
    """And its claims."""
    return [*of_all_kinds(claim, name), stage.pod(name, *claims_of(name), interfaces=NETWORK)]


def test_pods_wait_while_the_driver_is_away_and_start_when_it_is_back(stage, claim):
    before = stage.dump(*MINE)
    sockets = stage.cluster.prefix / "var/lib/kubelet"
    assert "podwire_network_driver" in stage.driver.page("metrics")[1]
    assert stage.driver.stop() == 0
    assert [path for path in sockets.glob("plugins*/**/*.sock") if "net.podwire.dev" in str(path)] == []
    stage.cluster.apply(*pod_with_all(stage, claim, "away"))
    stage.waits("away", "FailedPrepareDynamicResources", "DRA driver net.podwire.dev is not registered")
    stage.driver.start()
    stage.ready("away")
    listed = stage.devices()
    stage.driver.kill()
    stage.driver.start()
    assert stage.devices() == listed, "what is allocated is listed as it was, also by the next driver"
    stage.driver.kill()
    stage.cluster.output("delete", "pod", "away", "--force", "--grace-period=0")
    stage.cluster.eventually(lambda: not stage.cluster.sandboxes(ready=True), "its sandbox is gone")
    stage.driver.start()
    stage.as_before(before, *MINE)
    records = stage.cluster.prefix / "var/lib/podwire/network-driver/records"
    stage.cluster.eventually(lambda: list(records.iterdir()) == [], "nothing is on record of it", stage.logs)
    stage.never_bare("away")


def test_a_driver_that_is_stopped_or_slow_keeps_pods_waiting(stage, claim):
    before = stage.dump(*MINE)
    stage.driver.signal(signal.SIGSTOP)
    stage.cluster.apply(*pod_with_all(stage, claim, "stopped"))
    stage.cluster.eventually(lambda: stage.given("stopped-veth"), "it is scheduled")
    assert stage.cluster.sandboxes() == {}
    stage.driver.signal(signal.SIGCONT)
    stage.ready("stopped")
    stage.deleted("stopped")
    stage.driver.kill()
    plan, go = stage.directory / "slow", stage.directory / "go"
    plan.write_text(f"network-driver.begun=1*hold({go})->off")
    stage.driver.start(failpoints=plan)
    stage.cluster.apply(stage.pod("slow", *claims_of("stopped"), interfaces=NETWORK))
    stage.waits("slow", "FailedCreatePodSandBox")
    go.touch()
    stage.ready("slow")
    stage.deleted("slow")
    stage.as_before(before, *MINE)
    stage.never_bare("stopped", "slow")


def test_a_driver_restarted_after_prepare_attaches_the_prepared_device(stage, claim):
    before = stage.dump(*MINE)
    stage.driver.kill()
    plan, died = stage.directory / "between", stage.directory / "died-between"
    plan.write_text(f"network-driver.begun=kill({died})")
    stage.driver.start(failpoints=plan)
    stage.cluster.apply(*pod_with_all(stage, claim, "between"))
    stage.driver.ended()
    stage.waits("between", "network-driver")
    stage.driver.start()
    stage.ready("between")
    stage.deleted("between")
    stage.as_before(before, *MINE)
    stage.never_bare("between")


def test_every_step_that_a_pod_passes_is_among_those_killed_at():
    """But for what this kernel cannot do, what needs a DHCP server, and eBPF."""
    elsewhere = {"vrf", "vrf-deleted", "programs", "waiting", "mtu", "taken-away"}
    known = {point for point in KNOWN if point.startswith(("network-driver.", "addresses."))}
    assert known == {point for _, point in POINTS} | {f"network-driver.{item}" for item in elsewhere}


@pytest.mark.parametrize(("verb", "point"), POINTS if SOAK else sample())
def test_a_driver_that_is_killed_at_a_step_leaves_no_pod_bare_and_no_link_changed(stage, claim, verb, point):
    before, name = stage.dump(*MINE), point.replace(".", "-")
    stage.driver.kill()
    plan, died = stage.directory / f"plan-{name}", stage.directory / f"died-{name}"
    plan.write_text(f"{point}=kill({died})")
    wanted = pod_with_all(stage, claim, name)
    if verb == "ends":
        stage.driver.start()
        stage.run(*wanted)
        stage.driver.kill()
        stage.driver.start(failpoints=plan)
        stage.cluster.delete(name)
    else:
        stage.driver.start(failpoints=plan)
        stage.cluster.apply(*wanted)
    stage.driver.ended()
    assert died.exists()
    stage.driver.start()
    if verb == "starts":
        stage.ready(name)
        stage.deleted(name)
    stage.as_before(before, *MINE)
    stage.never_bare(name)
    stage.cluster.output("delete", "resourceclaims", *claims_of(name))

"""Claims, from the scheduler through a driver in plain grpcio into real containers. Kubelets and drivers die; no
container ever starts without what its pod claims."""

import contextlib
import json
import os
import random
import time

import pytest

from podwire.failpoints import KNOWN
from podwire.kubelet.claims import ClaimManager  # noqa: F401 - declares the failpoints
from tests.kubelet.claims import conftest as drivers

DRIVER = "nic.example.org"
API = "resource.k8s.io/v1"
POINTS = sorted(item for item in KNOWN if item.startswith("claims."))
AT_THE_END = {"claims.leaving", "claims.unprepared", "claims.dropped"}

SOAK = bool(os.environ.get("PODWIRE_SOAK"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
"""The same for all workers of a run; set it to repeat a run."""
SAMPLE = POINTS if SOAK else sorted(random.Random(SEED).sample(POINTS, 2))

pytestmark = pytest.mark.timeout(400)


@contextlib.contextmanager
def driver_of(node):
    """Prepares a claim by writing a CDI file that tells a container what it has."""
    made = drivers.DraDriver(node.root, DRIVER)
    files = node.prefix / "run/cdi"
    files.mkdir(parents=True, exist_ok=True)

    def prepare(claim):
        spec = {
            "cdiVersion": "0.6.0",
            "kind": f"{DRIVER}/nic",
            "devices": [{"name": claim.uid, "containerEdits": {"env": [f"NIC={claim.name}"]}}],
        }
        file = files / f"{DRIVER}-{claim.uid}.json"
        file.with_suffix(".tmp").write_text(json.dumps(spec))
        file.with_suffix(".tmp").rename(file)
        return [made.device(claim)]

    made.prepare = prepare
    made.unprepare = lambda claim: (files / f"{DRIVER}-{claim.uid}.json").unlink(missing_ok=True)
    made.left = lambda: sorted(path.name for path in files.glob(f"{DRIVER}-*"))
    try:
        yield made.start()
    finally:
        made.leave()


def offers(node, count=4):
    """A class, and devices of it."""
    node.make(
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "nics"},
         "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}},
        {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": "nics"},
         "spec": {"driver": DRIVER, "nodeName": "node",
                  "pool": {"name": "node", "generation": 1, "resourceSliceCount": 1},
                  "devices": [{"name": f"eth{number}"} for number in range(2, 2 + count)]}},
    )  # fmt: skip


def claim(name):
    requests = [{"name": "nic", "exactly": {"deviceClassName": "nics"}}]
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": requests}}}


def claiming(pod, container, name, *claims, **spec):
    """It says by its exit code whether it has what it claims."""
    script = "[ -n \"$NIC\" ] || exit 9; trap 'exit 0' TERM; while :; do sleep 0.05; done"
    wanted = {"claims": [{"name": claim} for claim in claims]}
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return pod(name, containers=[container("c0", script, resources=wanted)], resourceClaims=entries, **spec)


def written(node):
    return [path.name for path in (node.root / "claims").iterdir() if not path.name.startswith(".")]


def restarts(node, name):
    return node.get(f"pod {name}")["status"]["containerStatuses"][0]["restartCount"]


@pytest.fixture
def own_node(running, template):
    with running(template) as made:
        yield made


def test_a_pod_gets_its_claimed_devices_and_releases_them(own_node, pod, container, name):
    node = own_node
    offers(node)
    with driver_of(node) as driver:
        node.make(claim("mine"), claiming(pod, container, name, "mine"))
        node.wait(f"pod/{name}", "condition=Ready")
        assert node.exec(name, "echo $NIC").strip() == "mine"
        assert driver.prepared == ["mine"]
        (uid,) = written(node)
        assert node.get("resourceclaim mine")["metadata"]["uid"] == uid
        before = node.pid(name)
        node.kubelet.kill()
        node.kubelet.start()
        assert driver.reported.get(timeout=60) == (True, "")
        assert (node.pid(name), driver.prepared) == (before, ["mine"])
        assert [item["metadata"]["name"] for item in node.get("resourceslices")["items"]] == ["nics"]
        node(f"delete pod {name}")
        assert (driver.unprepared, driver.left(), written(node)) == (["mine"], [], [])
        node.eventually(lambda: "allocation" not in (node.get("resourceclaim mine").get("status") or {}), "it is free")


def test_a_pod_waits_for_its_dra_driver_and_reports_it(own_node, pod, container, name):
    node = own_node
    offers(node)
    node.make(claim("mine"), claiming(pod, container, name, "mine"))
    assert f"DRA driver {DRIVER} is not registered" in node.event_message(name, "FailedPrepareDynamicResources")
    assert node.sandboxes(name) == []
    with driver_of(node) as driver:
        node.wait(f"pod/{name}", "condition=Ready")
        driver.leave()
        node(f"delete pod {name} --wait=false")
        assert f"DRA driver {DRIVER} is not registered" in node.event_message(name, "FailedUnprepareDynamicResources")
        driver.start()
        node(f"wait pod/{name} --for=delete --timeout=60s")
        assert driver.left() == []


@pytest.mark.parametrize("point", SAMPLE)
def test_a_kubelet_that_is_killed_at_a_step_starts_nothing_without_its_claims(own_node, pod, container, point):
    node = own_node
    offers(node)
    node.kubelet.kill()
    plan = node.prefix / "failpoints"
    plan.write_text("")
    node.kubelet.start(PODWIRE_FAILPOINTS_FILE=str(plan))
    with driver_of(node) as driver:
        node.make(claim("one"), claim("two"))
        if point in AT_THE_END:
            node.make(claiming(pod, container, "first", "one", "two"))
            node.wait("pod/first", "condition=Ready")
        plan.write_text(f"{point}=kill")
        if point in AT_THE_END:
            node("delete pod first --wait=false")
        else:
            node.make(claiming(pod, container, "first", "one", "two"))
        node.eventually(lambda: not node.kubelet.alive, "the kubelet's end")
        node.kubelet.start()
        if point in AT_THE_END:
            node("wait pod/first --for=delete --timeout=60s")
            node.make(claiming(pod, container, "first", "one", "two"))
        node.wait("pod/first", "condition=Ready")
        assert restarts(node, "first") == 0
        assert len(driver.left()) == len(written(node)) == 2
        node("delete pod first")
        assert (driver.left(), written(node)) == ([], [])

"""Simulated hardware: cards and GPUs that belong together, cables that are pulled, virtual functions."""

import pytest

NET, GPU = "net.podwire.dev", "gpu.podwire.dev"
ROOT = "resource.kubernetes.io/pcieRoot"
CARDS = 8


def paired(number, parameters):
    """A card and a GPU below one root; the card is `net1` in the pod."""
    given = parameters(addresses=[f"192.0.2.{number + 1}/24"])
    rdma = {"cel": {"expression": f'device.attributes["{NET}"].rdma'}}
    devices = {
        "requests": [
            {"name": "nic", "exactly": {"deviceClassName": f"whole.{NET}", "selectors": [rdma]}},
            {"name": "gpu", "exactly": {"deviceClassName": GPU}},
        ],
        "constraints": [{"requests": ["nic", "gpu"], "matchAttribute": ROOT}],
        "config": [{"requests": ["nic"], "opaque": {"driver": NET, "parameters": given}}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"pair-{number}"},
        "spec": {"devices": devices},
    }


def all_devices(stage):
    """Devices of both drivers: attributes by name."""
    found = stage.cluster.get("resourceslices") or {"items": []}
    return {device["name"]: device for slice_ in found["items"] for device in slice_["spec"]["devices"]}


@pytest.fixture(scope="module")
def stage(empty_stage):
    made = empty_stage
    made.up("--hardware", "two-numa", config={"patienceSeconds": 0.5})
    made.driver.start()
    made.cluster.eventually(lambda: len(all_devices(made)) == 2 * CARDS, "both drivers offer", made.logs)
    return made


def test_each_pod_has_a_card_and_a_gpu_that_belong_together_and_one_too_many_waits(stage, parameters):
    offered, before = all_devices(stage), stage.dump("rail")
    pods = [stage.pod(f"pair-{number}", f"pair-{number}") for number in range(CARDS + 1)]
    claims = [paired(number, parameters) for number in range(CARDS + 1)]
    stage.cluster.apply(*claims[:CARDS], *pods[:CARDS])
    stage.ready(*(f"pair-{number}" for number in range(CARDS)))
    roots = set()
    for number in range(CARDS):
        nic, gpu = sorted(stage.given(f"pair-{number}"), key=lambda each: "gpu" in each)
        assert offered[nic]["attributes"][ROOT] == offered[gpu]["attributes"][ROOT]
        roots.add(offered[nic]["attributes"][ROOT]["string"])
    assert len(roots) == CARDS
    assert stage.inside("pair-0", f"wget -qO- http://192.0.2.{CARDS}/") == f"pair-{CARDS - 1}"
    stage.cluster.apply(claims[CARDS], pods[CARDS])
    events = stage.waits(f"pair-{CARDS}", "FailedScheduling")
    assert "held by default/pair-" in events
    stage.deleted("pair-3")
    stage.ready(f"pair-{CARDS}")
    stage.deleted(*(f"pair-{number}" for number in range(CARDS + 1) if number != 3))
    stage.as_before(before, "rail")
    stage.never_bare(*(f"pair-{number}" for number in range(CARDS + 1)))


def test_a_card_without_carrier_is_reported_and_not_allocated_until_it_is_back(stage, claim):
    before = stage.dump("rail")
    stage.run(claim("ill", "rail0", addresses=["198.51.100.1/24"]), stage.pod("ill", "ill"))
    [name] = stage.given("ill")
    unplugged = stage.cluster.podwire("hardware", "unplug", "rail0")
    assert unplugged.returncode == 0, unplugged.stderr

    def health():
        status = stage.cluster.get("pod", "ill")["status"]["containerStatuses"][0]
        return [
            resource["health"] for one in status.get("allocatedResourcesStatus", ()) for resource in one["resources"]
        ]

    stage.cluster.eventually(lambda: health() == ["Unhealthy"], "the pod's status tells it", stage.logs)
    stage.cluster.eventually(lambda: stage.devices()[name].get("taints"), "the slice has a taint", stage.logs)
    stage.deleted("ill")
    stage.cluster.apply(claim("next", "rail0", addresses=["198.51.100.1/24"]), stage.pod("next", "next"))
    assert "taint" in stage.waits("next", "FailedScheduling")
    assert stage.cluster.podwire("hardware", "plug", "rail0").returncode == 0
    stage.ready("next")
    stage.deleted("next")
    stage.as_before(before, "rail")
    stage.never_bare("ill", "next")


def test_kubectl_shows_the_claim_and_the_trace_matches_the_flow(stage, claim):
    stage.run(
        claim("addressed", "rail1", addresses=["198.51.100.7/24"]),
        stage.pod(
            "addressed",
            "addressed",
            container={"resources": {"claims": [{"name": "addressed"}], "limits": {f"{NET}/chardev": "1"}}},
        ),
    )
    stage.claimed_devices("addressed", "True", "Attached")
    [device] = stage.given("addressed")
    pod, claimed = (stage.cluster.output("describe", kind, "addressed") for kind in ("pod", "resourceclaim"))
    assert f"{device} is net1 with 198.51.100.7/24" in pod
    for name in ("NetworkReady", "Attached", "198.51.100.7/24", f"{device} is net1"):
        assert name in claimed
    [slice_] = [item for item in stage.cluster.get("resourceslices")["items"] if item["spec"]["driver"] == NET]
    offered = stage.cluster.output("describe", "resourceslice", slice_["metadata"]["name"])
    for entry in (device, "rail1", ROOT):
        assert entry in offered
    stage.cluster.eventually(lambda: "no deviations" in checked(stage), "it is as drawn", lambda: checked(stage))
    story = stage.cluster.space.run(
        stage.cluster.program, "node", "exec", "--prefix", stage.cluster.prefix, "node-1", "--", stage.cluster.program,
        "network-driver", "--node-name", "node-1",
        "--kubeconfig", "/var/lib/podwire/identities/network-driver.kubeconfig", "explain", "addressed",
    )  # fmt: skip
    assert "attached to pod default/addressed as net1" in story.stdout, story.stderr
    stage.deleted("addressed")
    stage.never_bare("addressed")


def checked(stage):
    return stage.cluster.podwire("trace", "addressed", "--check", "network-driver").stdout

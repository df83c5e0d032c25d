"""Output of `podwire network-driver explain`, and the texts of metrics and configuration."""

from pathlib import Path

import pytest

from podwire.dradriver.claims.damaged_records import DamagedRecord, DamagedRecords
from podwire.dradriver.claims.explanation import Sight, explained, seen_on_host
from podwire.dradriver.config import load
from podwire.dradriver.publish.interface_counters import parse
from podwire.dradriver.publish.metrics import Meter
from podwire.protocols.settings import BadConfig

REQUEST = {"name": "nic", "exactly": {"deviceClassName": "whole", "count": 1}}


def claim(status=None):
    meta = {"name": "lan", "namespace": "default", "uid": "u1"}
    return {"metadata": meta, "spec": {"devices": {"requests": [REQUEST]}}, "status": status or {}}


def pod(message=""):
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    return {
        "metadata": {"name": "wired", "uid": "p1"},
        "spec": {"resourceClaims": [{"name": "lan", "resourceClaimName": "lan"}]},
        "status": {"conditions": [condition] if message else []},
    }


def lines(claim_, *pods, events=()):
    return "\n".join(explained(claim_, pods=pods, events=events, node="node-1", sight=Sight()))


def allocated(**result):
    one = {"request": "nic", "driver": "net.podwire.dev", "pool": "node-1", "device": "lan1", **result}
    return claim({"allocation": {"devices": {"results": [one]}}})


CASES = {
    "no pod uses it": (claim(), (), "no pod uses it: a claim is allocated when a pod that names it is scheduled"),
    "the scheduler says why not": (claim(), (pod("eth2: mtu 1500 < 9000"),), "pod wired: eth2: mtu 1500 < 9000"),
    "the scheduler is away": (claim(), (pod(),), "pod wired: is not looked at by the scheduler yet"),
    "on another node": (allocated(pool="node-2"), (), "lan1: is on node node-2; ask there"),
    "not asked for": (allocated(), (), "lan1: not prepared; no kubelet has asked for it, or it was refused"),
    "another driver's": (allocated(driver="gpu.example.com"), (), "which is the business of gpu.example.com"),
    "reserved for no pod": (allocated(), (), "reserved for no pod"),
    "a share": (allocated(shareID="s1"), (), "device lan1 of pool node-1, share s1"),
}


@pytest.mark.parametrize(("claim_", "pods", "says"), CASES.values(), ids=CASES)
def test_explain_shows_claimed_devices_and_why_they_are_not_attached(claim_, pods, says):
    assert says in lines(claim_, *pods)


def test_explain_shows_events_of_driver_and_scheduler():
    about = {"uid": "u1", "kind": "ResourceClaim"}
    result = [
        {
            "involvedObject": about,
            "reason": reason,
            "message": "why",
            "lastTimestamp": f"2026-01-0{i}T00:00:00Z",
            "source": {"component": component},
        }
        for i, (reason, component) in enumerate(
            [("ClaimPrepareFailed", "podwire-network-driver"), ("FailedScheduling", "s"), ("Pulled", "kubelet")], 1
        )
    ]
    found = lines(claim(), events=result)
    assert "2026-01-01T00:00:00Z ResourceClaim ClaimPrepareFailed: why" in found
    assert "FailedScheduling" in found
    assert "Pulled" not in found


def test_metrics_are_in_the_form_that_prometheus_reads():
    times = iter([1.0, 1.003, 2.0, 2.5])
    meter = Meter(lambda: next(times))
    for _ in range(2):
        with meter.phase("attach"):
            pass
    meter.count("RunPodSandbox", False)
    text = meter.text({"devices": ("Devices", [((("name", 'a"\\\n'),), 2.0)])})
    assert 'podwire_network_driver_requests_total{method="RunPodSandbox",status="error"} 1' in text
    assert 'podwire_network_driver_phase_duration_seconds_bucket{phase="attach",le="0.004"} 1' in text
    assert 'podwire_network_driver_phase_duration_seconds_count{phase="attach"} 2' in text
    assert 'podwire_network_driver_devices{name="a\\"\\\\\\n"} 2' in text


def test_counters_of_interfaces_are_read_from_the_kernels_table():
    head = "Inter-| Receive | Transmit\n face |bytes packets\n"
    found = parse(f"{head}  net1: 100 2 3 4 0 0 0 0 200 5 6 7 0 0 0 0\nlong-name0:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
    assert found["net1"]["receive_bytes_total"] == 100
    assert found["net1"]["transmit_bytes_total"] == 200
    assert found["net1"]["transmit_dropped_total"] == 7
    assert found["long-name0"]["receive_packets_total"] == 2


def test_config_file_has_the_offering_and_the_pools(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("filter: 'true'\npools: {lab: {subnet: 10.9.0.0/24}}\n")
    found = load(path)
    assert (found.offering.filter, list(found.pools)) == ("true", ["lab"])
    path.write_text("")
    assert load(path).pools == {}


WRONG = {
    "a list": ("[]\n- a", "is not YAML"),
    "an unknown key": ("uplinks: 1", "uplinks: is not a setting; known settings: filter"),
    "pools that are none": ("pools: [a]", "pools: must be a mapping of names to pools"),
    "a pool without a subnet": ("pools: {lab: {rangeStart: 10.0.0.1}}", "pools.lab"),
    "twice the same": ("filter: a\nfilter: b", "twice"),
    "no YAML": ("a: [", "is not YAML"),
}


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_invalid_config_file_error_names_key_and_reason(tmp_path, text, why):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=why):
        load(path)


DAMAGED = DamagedRecord(files=(Path("/f"),), pod_uid="p1", claim_uid="u1", device="lan1", share_id="")
UNSEEN = {
    "another instance is at work": (Sight(unknown="process 7 holds the lock"), "not known: process 7 holds the lock"),
    "a record was damaged": (
        Sight(damaged=(DAMAGED,)),
        "lan1: the record of device lan1 was damaged and is quarantined as /f",
    ),
}


@pytest.mark.parametrize(("sight", "says"), UNSEEN.values(), ids=UNSEEN)
def test_explain_reports_what_it_cannot_read(sight, says):
    result = "\n".join(explained(allocated(), pods=(), events=(), node="node-1", sight=sight))
    assert says in result
    assert "not prepared" not in result


def test_explain_reports_that_there_is_no_driver_state(tmp_path):
    assert "no network driver has worked here" in seen_on_host(tmp_path / "none", "u1").unknown


def test_damaged_records_are_found_by_their_claim(tmp_path):
    for name in ("u1~lan1~.damaged", "u1~wifi%2F0~s1.damaged", "u2~lan2~.damaged", "u1~lan3~.json", "odd.damaged"):
        (tmp_path / "records/p1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "records/p1" / name).touch()
    damage = DamagedRecords(tmp_path)
    found = [(item.pod_uid, item.device, item.share_id) for item in damage.list("u1")]
    assert found == [("p1", "lan1", ""), ("p1", "wifi/0", "s1")]
    assert len(damage.list()) == 3
    for entry in damage.list("u1"):
        damage.discard(entry)
    assert [item.claim_uid for item in damage.list()] == ["u2"]

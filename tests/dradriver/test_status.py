"""The status of claims is reported, and retried until the write succeeds."""

import asyncio
import contextlib

import pytest

from podwire.dradriver.claims.allocations import ClaimRef, PodRef
from podwire.dradriver.publish.claim_reports import Recorder
from podwire.dradriver.publish.claim_status import Condition, DeviceState, Network, Statuses, status_of, times_in
from podwire.protocols.k8sapi.client_side import Unreachable
from podwire.protocols.k8sapi.client_side.events import NORMAL
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports.clock import SystemClock

PATIENCE = 30.0
CLAIM = ClaimRef(namespace="default", name="lan", uid="u1")
POD = PodRef(namespace="default", name="pod", uid="p1")
NETWORK = Network(interface="net1", mac="02:00:00:00:00:01", ips=("10.0.0.1/24",))


def state(reason="Attached", network=NETWORK, device="lan1"):
    return DeviceState(pool="n", device=device, share_id="", reason=reason, message="m", network=network)


def claim(uid="u1", devices=("lan1",), reported=()):
    results = [{"driver": "net.podwire.dev", "pool": "n", "device": device, "request": "r"} for device in devices]
    status = {"allocation": {"devices": {"results": results}}, "devices": list(reported)}
    return {"metadata": {"name": "lan", "namespace": "default", "uid": uid}, "status": status}


def test_attached_device_is_ready_with_its_network():
    (reported,) = status_of([state()], {}, 0.0)
    assert [(condition["type"], condition["status"]) for condition in reported["conditions"]] == [
        ("Ready", "True"),
        ("NetworkReady", "True"),
    ]
    assert reported["networkData"]["interfaceName"] == "net1"
    assert "shareID" not in reported


def test_device_that_is_not_attached_has_the_reason():
    (reported,) = status_of([state("AttachFailed", None)], {}, 0.0)
    assert {(condition["status"], condition["reason"]) for condition in reported["conditions"]} == {
        ("False", "AttachFailed")
    }
    assert "networkData" not in reported


def test_attached_device_without_lease_has_both_conditions():
    lost = Condition(reason="LeaseLost", message="the lease is lost")
    here = DeviceState(
        pool="n", device="lan1", share_id="", reason="Attached", message="m", network=NETWORK, network_failure=lost
    )
    (reported,) = status_of([here], {}, 0.0)
    assert [
        (condition["type"], condition["status"], condition["reason"], condition["message"])
        for condition in reported["conditions"]
    ] == [
        ("Ready", "True", "Attached", "m"),
        ("NetworkReady", "False", "LeaseLost", "the lease is lost"),
    ]
    assert reported["networkData"]["interfaceName"] == "net1"


def test_a_condition_that_is_as_before_is_so_since_then():
    before = status_of([state()], {}, 0.0)
    times = times_in(claim(reported=before))
    again = status_of([state(), state(device="lan2")], times, 100.0)
    assert [item["conditions"][0]["lastTransitionTime"] for item in again] == [
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:01:40Z",
    ]
    (other,) = status_of([state("Detached", None)], times, 100.0)
    assert other["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:01:40Z"


class FakeApi:
    """Fails as often as configured."""

    def __init__(self, claim_, *failures):
        self.claim, self.failures = claim_, list(failures)
        self.applied, self.created = [], []

    async def get(self, _kind, _name, _namespace=""):
        if self.claim is None:
            raise ApiError(Reason.NOT_FOUND, "gone")
        return self.claim

    async def apply(self, object_, **_how):
        if self.failures:
            raise self.failures.pop(0)
        self.applied.append(object_["status"]["devices"])
        return object_

    async def create(self, object_):
        if self.failures:
            raise self.failures.pop(0)
        self.created.append(object_)
        return object_

    async def patch(self, _kind, _name, patch, _namespace=""):
        self.created.append(patch)
        return {}


@contextlib.asynccontextmanager
async def running(worker):
    task = asyncio.ensure_future(worker.run())
    try:
        async with asyncio.timeout(PATIENCE):
            yield
            await worker.idle()
    finally:
        task.cancel()
        await asyncio.wait([task])


FAILURES = {
    "nobody answers": Unreachable("no route"),
    "the server is ill": ApiError(Reason.INTERNAL_ERROR, "ill"),
    "somebody else wrote": ApiError(Reason.CONFLICT, "again"),
    "too many": ApiError(Reason.TOO_MANY_REQUESTS, "wait"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_status_is_written_until_it_is(failure):
    api = FakeApi(claim(), failure, failure)
    statuses = Statuses(api, SystemClock())
    async with running(statuses):
        statuses.put(CLAIM, [state()])
        assert statuses.pending == 1
    assert len(api.applied) == 1
    assert statuses.pending == 0


NEVER = {
    "the claim is gone": FakeApi(None),
    "another claim has its name": FakeApi(claim("u2")),
    "it is refused": FakeApi(claim(), ApiError(Reason.INVALID, "no")),
}


@pytest.mark.parametrize("api", NEVER.values(), ids=NEVER)
async def test_status_that_the_server_rejects_is_dropped(api):
    statuses = Statuses(api, SystemClock())
    async with running(statuses):
        statuses.put(CLAIM, [state()])
    assert api.applied == []


async def test_only_the_newest_status_of_allocated_devices_is_written():
    api = FakeApi(claim())
    statuses = Statuses(api, SystemClock())
    statuses.put(CLAIM, [state("AttachFailed", None)])
    statuses.put(CLAIM, [state(), state(device="not allocated any more")])
    async with running(statuses):
        pass
    assert [[item["device"] for item in written] for written in api.applied] == [["lan1"]]
    assert api.applied[0][0]["conditions"][0]["status"] == "True"


async def test_events_are_about_the_pod_and_the_claim_and_are_counted():
    api = FakeApi(None, ApiError(Reason.INTERNAL_ERROR, "ill"))
    events = Recorder(api, SystemClock(), "node-1")
    async with running(events):
        events.report([CLAIM, POD, POD], NORMAL, "NetworkDeviceAttached", "lan1 is net1")
    assert [item["involvedObject"]["kind"] for item in api.created] == ["ResourceClaim", "Pod"]
    assert {item["source"]["component"] for item in api.created} == {"podwire-network-driver"}
    async with running(events):
        events.report([POD], NORMAL, "NetworkDeviceAttached", "lan1 is net1")
    assert api.created[-1]["count"] == 2

"""Pods get what they claim before anything is started: a whole kubelet, a driver on the wire, a runtime in memory."""

import asyncio
import dataclasses
import json

import grpc
import pytest

from podwire.cluster.kubelet_plugins import PluginSockets
from podwire.kubelet.claims import ClaimSettings
from podwire.kubelet.pods.status_manager import PODS
from podwire.protocols.cri import cri_pb2
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.podresources import podresources_pb2 as resources
from tests.eventually import eventually

DRIVER = "nic.example.org"


def cdi(world, container="c"):
    return [device.name for device in world.runtime.configs[container].CDI_devices]


def waits(text):
    def reported(pod):
        statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or [{}]
        waiting = (statuses[0].get("state") or {}).get("waiting") or {}
        return waiting.get("reason") == "FailedPrepareDynamicResources" and text in waiting.get("message", "")

    return reported


async def left(world, driver):
    """And the kubelet has noticed."""
    await asyncio.to_thread(driver.leave)
    await asyncio.to_thread(eventually, lambda: driver.name not in world.kubelet._claims.drivers)


def written(world):
    return [path for path in (world.root / "claims").iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_claim_is_prepared_for_its_pod_and_unprepared_after_it(world, dra_driver, claims, version):
    driver = await asyncio.to_thread(dra_driver(version=version).start)
    made = await claims.make()
    await claims.pod()
    await world.running()
    assert cdi(world) == [f"{DRIVER}/nic={made['metadata']['uid']}"]
    assert driver.prepared == ["mine"]
    assert [item.name for item in written(world)] == [made["metadata"]["uid"]]
    await world.delete()
    assert driver.unprepared == ["mine"]
    assert written(world) == []


async def test_nothing_is_made_before_all_drivers_are_through_and_each_is_asked_once_for_all(world, dra_driver, claims):
    slow, quick = dra_driver(), dra_driver("gpu.example.org")
    gate, good = dra_driver.gate(), slow.prepare
    slow.prepare = lambda claim: gate.wait(30) and good(claim)
    await asyncio.to_thread(slow.start)
    await asyncio.to_thread(quick.start)
    await claims.make("one")
    await claims.make("two")
    await claims.make("gpu", driver="gpu.example.org")
    pod = await claims.pod("p", "one", "two", "gpu", reserve=False)
    for name in ("one", "two", "gpu"):
        await claims.reserve(name, pod)
    await asyncio.to_thread(eventually, lambda: quick.calls and slow.calls)
    assert "RunPodSandbox" not in world.runtime.calls
    gate.set()
    await world.running()
    assert (slow.calls, quick.calls) == ([["one", "two"]], [["gpu"]])
    assert len(cdi(world)) == 3


async def test_claims_that_no_container_names_are_prepared_too(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod(containers=[{"name": "c", "image": "i", "imagePullPolicy": "Never"}])
    await world.running()
    assert (driver.prepared, cdi(world)) == (["mine"], [])


async def test_a_claim_that_is_made_for_the_pod_is_waited_for_and_must_be_its_own(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make("p-own-x")
    entry = {"name": "mine", "resourceClaimTemplateName": "fast"}
    pod = await claims.pod("p", "mine", reserve=False, resourceClaims=[entry])
    await world.until(waits('pod "default/p": ResourceClaim not created yet'))
    statuses = {"status": {"resourceClaimStatuses": [{"name": "mine", "resourceClaimName": "p-own-x"}]}}
    await world.api.patch(PODS, "p", statuses, "default", subresource="status")
    await world.until(waits("was not created for pod default/p (pod is not owner)"))
    await claims.reserve("p-own-x", pod)
    await claims.own("p-own-x", pod)
    await world.running()
    assert driver.prepared == ["p-own-x"]


async def test_a_pod_that_needs_no_claim_after_all_has_none(world, claims):
    entry = {"name": "mine", "resourceClaimTemplateName": "fast"}
    await claims.pod("p", "mine", reserve=False, resourceClaims=[entry])
    await world.until(waits("not created yet"))
    statuses = {"status": {"resourceClaimStatuses": [{"name": "mine"}]}}
    await world.api.patch(PODS, "p", statuses, "default", subresource="status")
    await world.running()


async def test_a_claim_that_is_missing_or_for_others_is_waited_for(world, dra_driver, claims):
    await asyncio.to_thread(dra_driver().start)
    pod = await claims.pod(reserve=False)
    await world.until(waits('fetch ResourceClaim mine: resourceclaims.resource.k8s.io "mine" not found'))
    result = await world.event("FailedPrepareDynamicResources")
    assert result.startswith("Failed to prepare dynamic resources: fetch ResourceClaim mine: ")
    made = await claims.make()
    uid = made["metadata"]["uid"]
    await world.until(waits(f"pod p ({pod['metadata']['uid']}) is not allowed to use ResourceClaim mine ({uid})"))
    assert "RunPodSandbox" not in world.runtime.calls
    await claims.reserve("mine", pod)
    await world.running()


async def test_a_driver_is_waited_for(world, dra_driver, claims):
    await claims.make()
    await claims.pod()
    await world.until(waits(f"DRA driver {DRIVER} is not registered"))
    await asyncio.to_thread(dra_driver().start)
    await world.running()


async def test_a_failing_driver_is_reported_verbatim_and_retried(world, dra_driver, claims):
    driver = dra_driver()
    good, failures = driver.prepare, ["the cable is cut", "the cable is still cut"]

    def prepare(claim):
        if failures:
            raise ValueError(failures.pop(0))
        return good(claim)

    driver.prepare = prepare
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.until(
        waits(f"DRA driver {DRIVER}: NodePrepareResources failed for ResourceClaim mine: the cable is cut")
    )
    await world.running()
    assert driver.prepared == ["mine"] * 3


async def test_a_status_written_by_the_driver_does_not_prepare_again(world, dra_driver, claims):
    driver = dra_driver()

    def prepare(claim):
        raise ValueError("the cable is cut")

    driver.prepare = prepare
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.until(waits("the cable is cut"))
    for number in range(20):
        await claims.reported(f"cut for the {number}th time")
    await asyncio.sleep(0.2)
    assert len(driver.prepared) < 8


async def test_a_failed_driver_does_not_repeat_the_others(world, dra_driver, claims):
    good, bad = dra_driver(), dra_driver("gpu.example.org")
    failures, works = [ValueError("too hot")], bad.prepare

    def prepare(claim):
        if failures:
            raise failures.pop()
        return works(claim)

    bad.prepare = prepare
    await asyncio.to_thread(good.start)
    await asyncio.to_thread(bad.start)
    await claims.make("one")
    await claims.make("gpu", driver="gpu.example.org")
    await claims.pod("p", "one", "gpu")
    await world.until(waits("too hot"))
    await world.running()
    assert (good.prepared, bad.prepared) == (["one"], ["gpu", "gpu"])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda driver: driver.messages.NodePrepareResourcesResponse(), "skipped 1 ResourceClaims"),
        (lambda driver: {}["no answer"], "NodePrepareResources: Exception calling application"),
    ],
    ids=["it skips", "it breaks"],
)
async def test_an_answer_that_is_none_starts_nothing(world, dra_driver, claims, answer, why):
    driver = dra_driver()
    good = driver.answer
    driver.answer = lambda _given: answer(driver)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.until(waits(why))
    assert "RunPodSandbox" not in world.runtime.calls
    driver.answer = good
    await world.running()


async def test_a_driver_that_hangs_holds_up_only_its_own_pods(world, dra_driver, claims):
    await world.stop()
    world.start(ClaimSettings(call=0.3, slow=0.1))
    driver = dra_driver()
    gate, good = dra_driver.gate(), driver.prepare
    driver.prepare = lambda claim: gate.wait(30) and good(claim)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await world.make("other")
    await world.running("other")
    await world.until(waits(f"DRA driver {DRIVER}: NodePrepareResources: Deadline Exceeded"))
    result = await world.event("WaitingForDynamicResources")
    assert result == f"DRA driver {DRIVER} has not prepared ResourceClaim mine for 0.1 s"
    gate.set()
    await world.running()


async def test_a_pod_that_goes_while_its_driver_hangs_leaves_nothing(world, dra_driver, claims):
    driver = dra_driver()
    gate = dra_driver.gate()
    driver.prepare = lambda claim: gate.wait(30) and []
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await asyncio.to_thread(eventually, lambda: driver.calls)
    await world.delete()
    assert driver.unprepared == ["mine"]
    assert written(world) == []
    assert "RunPodSandbox" not in world.runtime.calls


async def test_a_driver_is_not_asked_to_unprepare_what_it_is_about_to_prepare(world, dra_driver, claims):
    """A pod is deleted while its claim is prepared: a driver that served both calls at once could prepare last."""
    driver = dra_driver()
    gate, order, unprepare = dra_driver.gate(), [], driver.unprepare

    def prepare(claim):
        gate.wait(30)
        order.append("prepared")
        return []

    driver.prepare = prepare
    driver.unprepare = lambda claim: order.append("unprepared") or unprepare(claim)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod()
    await asyncio.to_thread(eventually, lambda: driver.calls)
    asyncio.get_running_loop().call_later(0.3, gate.set)
    await world.delete()
    assert order == ["prepared", "unprepared"]


async def test_a_shared_claim_is_unprepared_with_the_last_pod(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    one = await claims.pod("one")
    await world.running("one")
    two = await claims.pod("two", reserve=False)
    await claims.reserve("mine", one, two)
    await world.running("two")
    assert driver.prepared == ["mine", "mine"]
    await world.delete("one")
    assert driver.unprepared == []
    await world.delete("two")
    assert driver.unprepared == ["mine"]


async def test_a_pod_waits_for_a_claim_that_cannot_be_shared(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    good, users = driver.prepare, ["one"]

    def prepare(claim):
        if len(users) > 1:
            raise ValueError("one pod at a time")
        return good(claim)

    driver.prepare = prepare
    await claims.make()
    one = await claims.pod("one")
    await world.running("one")
    users.append("two")
    two = await claims.pod("two", reserve=False)
    await claims.reserve("mine", one, two)
    await world.until(waits("one pod at a time"), "two")
    await claims.reserve("mine", two)
    users.remove("one")
    await world.delete("one")
    await world.running("two")
    assert driver.unprepared == ["mine"]
    await world.delete("two")
    assert driver.unprepared == ["mine", "mine"]


async def test_a_container_that_starts_again_has_the_same_devices_though_its_driver_is_gone(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    before = cdi(world)
    await left(world, driver)
    world.runtime.configs.clear()
    world.runtime.ends("c", 1)
    await world.until(lambda each: each and each["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert cdi(world) == before
    assert driver.prepared == ["mine"]
    await asyncio.to_thread(driver.start)


async def test_a_new_sandbox_needs_the_driver_but_no_second_preparation(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await left(world, driver)
    sandbox = next(iter(world.runtime.sandboxes.values()))
    world.runtime.stop_pod_sandbox(cri_pb2.StopPodSandboxRequest(pod_sandbox_id=sandbox.id))
    world.runtime.tell(sandbox.id)
    await world.until(waits(f"DRA driver {DRIVER} is not registered"))
    assert world.runtime.calls.count("RunPodSandbox") == 1
    await asyncio.to_thread(driver.start)
    await world.runtime.until_true(lambda: world.runtime.calls.count("StartContainer") == 2)
    assert driver.prepared == ["mine"]


async def test_the_end_of_a_pod_is_reported_after_unpreparation(world, dra_driver, claims):
    driver = dra_driver()
    gate = dra_driver.gate()
    driver.unprepare = lambda claim: gate.wait(30)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod(restartPolicy="Never")
    await world.running()
    world.runtime.ends("c")
    await asyncio.to_thread(eventually, lambda: driver.unprepared)
    assert (await world.api.get(PODS, "p", "default"))["status"]["phase"] == "Running"
    gate.set()
    await world.until(lambda each: each and each["status"]["phase"] == "Succeeded")
    await world.delete()
    assert driver.unprepared == ["mine"]


@pytest.mark.parametrize("ended", [True, False], ids=["it ends", "it is deleted"])
async def test_a_failed_unpreparation_is_reported_and_retried(world, dra_driver, claims, ended):
    driver = dra_driver()
    failures = ["still busy"]

    def unprepare(claim):
        if failures:
            raise ValueError(failures.pop())

    driver.unprepare = unprepare
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod(restartPolicy="Never")
    await world.running()
    if ended:
        world.runtime.ends("c")
        await world.until(lambda each: each and each["status"]["phase"] == "Succeeded")
    else:
        await world.delete()
    assert driver.unprepared == ["mine"] * 2
    result = await world.event("FailedUnprepareDynamicResources")
    assert result.endswith("NodeUnprepareResources failed for ResourceClaim mine: still busy")


async def test_a_claim_is_free_once_its_own_driver_unprepared_it(world, dra_driver, claims):
    good, bad = dra_driver(), dra_driver("gpu.example.org")
    failures = ["still busy"]

    def unprepare(_claim):
        if failures:
            raise ValueError(failures.pop())

    bad.unprepare = unprepare
    await asyncio.to_thread(good.start)
    await asyncio.to_thread(bad.start)
    await claims.make("one")
    await claims.make("gpu", driver="gpu.example.org")
    await claims.pod("p", "one", "gpu")
    await world.running()
    await world.delete()
    assert (good.unprepared, bad.unprepared) == (["one"], ["gpu"] * 2)
    assert written(world) == []


async def test_a_pod_is_not_deleted_before_its_driver_unprepares(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await left(world, driver)
    await world.api.delete(PODS, "p", "default")
    assert f"DRA driver {DRIVER} is not registered" in await world.event("FailedUnprepareDynamicResources")
    gone = asyncio.create_task(world.gone())
    await asyncio.to_thread(driver.start)
    await gone
    assert driver.unprepared == ["mine"]


async def test_the_successor_of_a_force_deleted_pod_waits_for_its_claims(world, dra_driver, claims):
    driver = dra_driver()
    gate = dra_driver.gate()
    driver.unprepare = lambda claim: gate.wait(30)
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod("old")
    await world.running("old")
    await world.api.delete(PODS, "old", "default", grace_seconds=0)
    await asyncio.to_thread(eventually, lambda: driver.unprepared)
    await claims.pod("new")
    await asyncio.sleep(0.2)
    assert driver.prepared == ["mine"]
    gate.set()
    await world.running("new")
    assert (driver.prepared, driver.unprepared) == (["mine"] * 2, ["mine"])


async def test_the_pod_resources_api_lists_claims_by_container(world, dra_driver, claims):
    await asyncio.to_thread(dra_driver().start)
    made = await claims.make()
    await claims.pod()
    await world.running()
    request = resources.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
    found = await asyncio.to_thread(ask, world.root / "pod-resources/kubelet.sock", request)
    (container,) = found.pod_resources.containers
    (one,) = container.dynamic_resources
    (device,) = one.claim_resources
    assert (one.claim_namespace, one.claim_name) == ("default", "mine")
    assert (device.driver_name, device.pool_name, device.device_name) == (DRIVER, "n", "eth2")
    assert [item.name for item in device.cdi_devices] == [f"{DRIVER}/nic={made['metadata']['uid']}"]


@pytest.mark.parametrize(("driver", "needs"), [("net.podwire.dev", ["network-driver"]), (DRIVER, None)])
async def test_the_sandbox_names_the_required_plugin_of_a_claim(world, dra_driver, claims, driver, needs):
    await asyncio.to_thread(dra_driver(driver).start)
    await claims.make(driver=driver)
    await claims.pod()
    await world.running()
    (sandbox,) = world.runtime.sandboxes.values()
    result = sandbox.annotations.get("required-plugins.noderesource.dev/pod")
    assert (json.loads(result) if result else None) == needs


def ask(socket, request):
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            "/v1.PodResourcesLister/Get",
            lambda message: message.SerializeToString(),
            resources.GetPodResourcesResponse.FromString,
        )
        return call(request, timeout=30, wait_for_ready=True)


async def test_a_claim_that_cannot_be_read_is_reported(world, dra_driver, claims, monkeypatch):
    await asyncio.to_thread(dra_driver().start)
    await claims.make()
    get, refusals = world.line.get, [ApiError.from_status({"message": "not you", "reason": "Forbidden"}, code=403)]

    async def refused(kind, name, namespace=""):
        if kind.kind == "ResourceClaim" and refusals:
            raise refusals.pop()
        return await get(kind, name, namespace)

    monkeypatch.setattr(world.line, "get", refused)
    await claims.pod()
    await world.until(waits("fetch ResourceClaim mine: not you"))
    await world.running()


async def test_calls_to_drivers_are_seen_with_their_pod_and_their_claims(world, dra_driver, claims):
    hops = []
    await world.stop()
    world.outside = dataclasses.replace(world.outside, plugins=PluginSockets(hops.append))
    world.start()
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    await world.delete()
    seen = [hop for hop in hops if "NetworkDriver" in (hop.caller, hop.callee)]
    assert [(item.caller, item.method, item.outcome) for item in seen] == [
        ("Kubelet", "NodePrepareResources", ""),
        ("NetworkDriver", "NodePrepareResources", "OK"),
        ("Kubelet", "NodeUnprepareResources", ""),
        ("NetworkDriver", "NodeUnprepareResources", "OK"),
    ]
    assert {item.detail["about"] for item in seen} == {"default/p"}
    assert {item.detail["socket"] for item in seen} == {str(driver.socket)}
    assert [claim.name for claim in seen[0].detail["request"].claims] == ["mine"]
    (answer,) = seen[1].detail["response"].claims.values()
    assert [device.device_name for device in answer.devices] == ["eth2"]


async def test_a_pod_past_its_deadline_fails_after_unpreparation(world, dra_driver, claims):
    driver = dra_driver()
    seen = []
    driver.unprepare = lambda claim: seen.append(list(world.line.patches))
    await asyncio.to_thread(driver.start)
    await claims.make()
    await claims.pod(activeDeadlineSeconds=2)
    await world.until(lambda each: each and each["status"]["phase"] == "Failed")
    (before,) = seen
    assert not [patch for _, patch in before if patch["status"].get("phase") == "Failed"]


async def test_a_pod_that_others_end_gives_its_claims_back(world, dra_driver, claims):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    await claims.pod()
    await world.running()
    patch = {"status": {"phase": "Failed", "reason": "Evicted", "message": "no space"}}
    await world.api.patch(PODS, "p", patch, "default", subresource="status")
    await asyncio.to_thread(eventually, lambda: driver.unprepared == ["mine"])
    assert "StopPodSandbox" in world.runtime.calls

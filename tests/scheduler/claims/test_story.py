"""Pods with claims on a real API server: devices are given, kept apart, and given back."""

import asyncio

import pytest

from podwire.objects.claims import FINALIZER
from podwire.protocols.k8sapi.client_side import Interrupted, Reply
from podwire.scheduler.kinds import CLAIMS, PODS, SLICES


@pytest.fixture
async def devices(cluster, words):
    """A node with two interfaces, of which one takes large frames."""
    await cluster.node("n1")
    await cluster.api.create(words.class_("nic", f'device.driver == "{words.DRIVER}"'))
    offered = [words.device("eth2", mtu=1500), words.device("eth3", mtu=9000)]
    await cluster.api.create(words.slice("n1", offered))
    return cluster


async def claim(cluster, words, name="nic", *selectors, **given):
    made = words.claim(name, words.request("nic", *selectors, **given))
    made.pop("status")
    return await cluster.api.create(made)


async def pod(cluster, name, *claims):
    return await cluster.pod(name, resourceClaims=[{"name": claim, "resourceClaimName": claim} for claim in claims])


async def seen(cluster, name):
    return await cluster.api.get(CLAIMS, name, "default")


LARGE = 'device.attributes["net.example.com"].mtu >= 9000'


async def test_a_pod_is_bound_once_its_claim_has_a_device_and_is_reserved_for_it(devices, words):
    await claim(devices, words, "nic", LARGE)
    made = await pod(devices, "web", "nic")
    async with devices.scheduler():
        assert (await devices.placed("web"))["spec"]["nodeName"] == "n1"
    found = await seen(devices, "nic")
    assert found["metadata"]["finalizers"] == [FINALIZER]
    allocation = found["status"]["allocation"]
    assert allocation["devices"]["results"] == [
        {"request": "nic", "driver": words.DRIVER, "pool": "n1", "device": "eth3"}
    ]
    only = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert allocation["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [only]}]}
    assert found["status"]["reservedFor"] == [{"resource": "pods", "name": "web", "uid": made["metadata"]["uid"]}]


async def test_an_unsatisfiable_claim_has_a_reason_for_each_device(devices, words):
    await claim(devices, words, "db", LARGE)
    await claim(devices, words, "nic", LARGE)
    async with devices.scheduler():
        await pod(devices, "db", "db")
        await devices.placed("db")
        await pod(devices, "web", "nic")
        [event] = await devices.events("FailedScheduling")
        assert event["note"] == (
            "0/1 nodes are available: 1 cannot allocate all claims. On n1, claim default/nic, request nic: "
            "eth3: held by default/db; eth2: mtu 1500 < 9000. "
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
        await devices.api.patch(CLAIMS, "db", {"status": {"allocation": None, "reservedFor": None}}, "default",
                                subresource="status")  # fmt: skip
        await devices.placed("web")


async def test_a_device_that_comes_later_wakes_the_pod(devices, words):
    await claim(devices, words, "nic", 'device.attributes["net.example.com"].mtu > 9000')
    async with devices.scheduler():
        await pod(devices, "web", "nic")
        await devices.refused("web", "eth3: mtu 9000 <= 9000")
        jumbo = words.device("eth4", mtu=9216)
        await devices.api.patch(SLICES, f"n1-{words.DRIVER}", {"spec": {"devices": [jumbo]}})
        await devices.placed("web")


async def test_claims_and_classes_that_are_missing_are_named_until_they_come(devices, words):
    async with devices.scheduler():
        await pod(devices, "web", "nic")
        await devices.refused("web", 'resourceclaim "nic" not found')
        await claim(devices, words, "nic", class_name="fast")
        await devices.refused("web", "request nic: device class fast does not exist")
        await devices.api.create(words.class_("fast"))
        await devices.placed("web")


async def test_two_pods_share_a_claim_and_no_device_is_given_twice(devices, words):
    for name in ("shared", "own"):
        await claim(devices, words, name)
    async with devices.scheduler():
        await asyncio.gather(pod(devices, "a", "shared"), pod(devices, "b", "shared"), pod(devices, "c", "own"))
        for name in ("a", "b", "c"):
            await devices.placed(name)
    status = (await seen(devices, "shared"))["status"]
    assert {item["name"] for item in status["reservedFor"]} == {"a", "b"}
    other = (await seen(devices, "own"))["status"]
    names = [item["allocation"]["devices"]["results"][0]["device"] for item in (status, other)]
    assert sorted(names) == ["eth2", "eth3"]


async def test_claim_with_a_device_that_no_longer_exists_is_allocated_another(devices, words):
    await claim(devices, words, "nic")
    status = words.allocated("eth7", node="n1")
    await devices.api.patch(CLAIMS, "nic", {"status": status}, "default", subresource="status")
    async with devices.scheduler():
        await pod(devices, "web", "nic")
        await devices.placed("web")
        why = f"resourceclaim default/nic was allocated device eth7 of pool {words.DRIVER}/n1, which does not exist"
        [event] = await devices.events("FailedScheduling")
        assert why in event["note"]
        [event] = await devices.events("Deallocated", name="nic")
        assert (event["regarding"]["kind"], event["note"]) == ("ResourceClaim", why)
    [result] = (await seen(devices, "nic"))["status"]["allocation"]["devices"]["results"]
    assert result["device"] in ("eth2", "eth3")


async def test_an_allocation_on_an_unusable_node_is_released_and_replaced(devices, words):
    await devices.node("n2", unschedulable=True)
    await devices.api.create(words.slice("n2", [words.device("eth9", mtu=1500)]))
    await claim(devices, words, "nic")
    only = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    allocation = words.allocated("eth9", node="n2")["allocation"]
    allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    await devices.api.patch(CLAIMS, "nic", {"status": {"allocation": allocation}}, "default", subresource="status")
    async with devices.scheduler():
        await pod(devices, "web", "nic")
        assert (await devices.placed("web"))["spec"]["nodeName"] == "n1"
    [result] = (await seen(devices, "nic"))["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == ("n1", "eth2")


async def test_the_server_takes_shares_tolerations_alternatives_and_configuration(devices, words):
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    policy = {"bandwidth": {"validRange": {"min": "1G", "step": "1G"}, "default": "1G"}}
    parent = words.device("eth4", shared=True, capacity={"bandwidth": "10G"}, policies=policy, kind="parent")
    spoiled = words.device("eth5", kind="spoiled", taints=[taint])
    await devices.api.create(words.slice("n1", [parent, spoiled], name="more", pool="more"))
    tolerated = {"key": "broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    kind = 'device.attributes["net.example.com"].?kind.orValue("")'
    share = words.request("share", f'{kind} == "parent"', capacity={"requests": {"bandwidth": "2500M"}})
    either = {"name": "either", "firstAvailable": [
        words.subrequest("none", "false"),
        words.subrequest("spoiled", f'{kind} == "spoiled"', tolerations=[tolerated])]}  # fmt: skip
    opaque = {"opaque": {"driver": words.DRIVER, "parameters": {"mtu": 1400}}, "requests": ["share"]}
    for entry in ("one", "two"):
        made = words.claim(entry, share, *([either] if entry == "one" else []), config=[opaque])
        made.pop("status")
        await devices.api.create(made)
    async with devices.scheduler():
        for entry in ("one", "two"):
            await pod(devices, entry, entry)
            await devices.placed(entry)
    first, second = [(await seen(devices, name))["status"]["allocation"]["devices"] for name in ("one", "two")]
    shares = [item["results"][0] for item in (first, second)]
    assert [(share["device"], share["consumedCapacity"]) for share in shares] == [("eth4", {"bandwidth": "3G"})] * 2
    assert shares[0]["shareID"] != shares[1]["shareID"]
    assert first["results"][1]["request"] == "either/spoiled"
    assert first["results"][1]["tolerations"] == [tolerated]
    assert first["config"] == [{"source": "FromClaim", **opaque}]


async def test_a_claim_that_others_write_to_is_written_all_the_same(devices, words):
    await claim(devices, words, "nic")
    wire, disturbed = devices.wire(), []

    async def relabelled(method, path, send):
        if method == "PATCH" and "resourceclaims" in path and len(disturbed) < 2:
            disturbed.append(path)
            label = {"metadata": {"labels": {"times": str(len(disturbed))}}}
            await devices.api.patch(CLAIMS, "nic", label, "default")
        return await send()

    wire.disturb = relabelled
    async with devices.scheduler(wire):
        await pod(devices, "web", "nic")
        await devices.placed("web")
    assert len(disturbed) == 2
    assert (await seen(devices, "nic"))["metadata"]["labels"] == {"times": "2"}


async def test_a_write_without_an_answer_still_counts_for_the_pod(devices, words):
    await claim(devices, words, "nic")
    wire, lost = devices.wire(), []

    async def deaf(method, path, send):
        answer = await send()
        if method == "PATCH" and path.endswith("resourceclaims/nic/status") and not lost:
            lost.append(path)
            raise Interrupted("reset by peer")
        return answer

    wire.disturb = deaf
    async with devices.scheduler(wire):
        await pod(devices, "web", "nic")
        await devices.placed("web")
    assert len(lost) == 1
    assert [item["name"] for item in (await seen(devices, "nic"))["status"]["reservedFor"]] == ["web"]


async def test_a_claim_allocated_by_another_scheduler_is_followed(devices, words):
    await claim(devices, words, "nic")
    wire, other = devices.wire(), words.allocated("eth3")

    async def quicker(method, path, send):
        if method == "PATCH" and path.endswith("resourceclaims/nic/status") and other:
            await devices.api.patch(CLAIMS, "nic", {"status": dict(other)}, "default", subresource="status")
            other.clear()
        return await send()

    wire.disturb = quicker
    async with devices.scheduler(wire):
        await pod(devices, "web", "nic")
        await devices.placed("web")
    status = (await seen(devices, "nic"))["status"]
    assert [result["device"] for result in status["allocation"]["devices"]["results"]] == ["eth3"]
    assert [item["name"] for item in status["reservedFor"]] == ["web"]


async def test_a_claim_from_a_template_is_waited_for_without_an_event(devices, words):
    wire = devices.wire()
    async with devices.scheduler(wire):
        made = await devices.pod("web", resourceClaims=[{"name": "nic", "resourceClaimTemplateName": "nic"}])
        generated = words.claim("web-nic-x")
        generated.pop("status")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": made["metadata"]["uid"], "controller": True}
        generated["metadata"]["ownerReferences"] = [owner]
        await devices.api.create(generated)
        status = {"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "web-nic-x"}]}
        await devices.api.patch(PODS, "web", {"status": status}, "default", subresource="status")
        await devices.placed("web")
        await devices.events("Scheduled")
    assert not [path for method, path in wire.calls if method == "PATCH" and path.endswith("pods/web/status")]


@pytest.mark.parametrize(
    ("method", "ending"),
    [
        pytest.param("PATCH", "resourceclaims/nic", id="before the finalizer"),
        pytest.param("PATCH", "resourceclaims/nic/status", id="before the devices are written"),
        pytest.param("POST", "pods/web/binding", id="before the binding"),
    ],
)
@pytest.mark.parametrize("sent", [False, True], ids=["not sent", "sent, the answer not heard"])
async def test_a_scheduler_resumes_after_another_was_killed_at_any_step(devices, words, method, ending, sent):
    await claim(devices, words, "nic")
    await claim(devices, words, "other")
    wire, there = devices.wire(), asyncio.Event()

    async def stuck(called, path, send):
        if called == method and path.endswith(ending):
            if sent:
                await send()
            there.set()
            await asyncio.Event().wait()
        return await send()

    wire.disturb = stuck
    async with devices.scheduler(wire):
        await pod(devices, "web", "nic")
        await asyncio.wait_for(there.wait(), 40)
    async with devices.scheduler():
        await pod(devices, "more", "other")
        for entry in ("web", "more"):
            await devices.placed(entry)
    statuses = [(await seen(devices, name))["status"] for name in ("nic", "other")]
    assert [[item["name"] for item in status["reservedFor"]] for status in statuses] == [["web"], ["more"]]
    given = [status["allocation"]["devices"]["results"][0]["device"] for status in statuses]
    assert sorted(given) == ["eth2", "eth3"]


def forbidding(paths, absent=()):
    """A disturbance as kube-apiserver answers a user whose roles do not name the kinds of these paths."""
    body = b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no role allows it"}'

    async def disturb(method, path, send):
        if path in paths:
            return Reply(403, {}, body)
        return Reply(404, {}, b"404 page not found") if path in absent else await send()

    return disturb


RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"


async def test_taint_rules_that_are_not_served_and_answered_with_403_hold_back_no_pod(devices, words):
    """kube-apiserver authorizes before it routes, and system:kube-scheduler has no right to what is not served."""
    wire = devices.wire()
    wire.disturb = forbidding({RULES}, absent={"/apis/resource.k8s.io/v1beta2"})
    await claim(devices, words)
    async with devices.scheduler(wire):
        await pod(devices, "web", "nic")
        await devices.placed("web")


@pytest.mark.parametrize(
    ("path", "kind"),
    [(RULES, "devicetaintrules"), ("/apis/resource.k8s.io/v1/resourceslices", "resourceslices")],
)
async def test_a_kind_that_is_served_and_may_not_be_listed_is_named_by_condition_and_event(devices, words, path, kind):
    wire = devices.wire()
    wire.disturb = forbidding({path})
    await claim(devices, words)
    async with devices.scheduler(wire):
        await pod(devices, "web", "nic")
        await devices.refused("web", f"the scheduler cannot list {kind}.resource.k8s.io: no role allows it")
        [event] = await devices.events("FailedScheduling")
        assert "no role allows it" in event["note"]
        wire.disturb = None
        await devices.placed("web")

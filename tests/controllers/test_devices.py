"""Claims and tainted devices on a real API server: beside its store, and over HTTPS."""

import asyncio
import contextlib

import pytest

from podwire import controllers
from podwire.cluster.apiserver import Options, running
from podwire.cluster.apiserver_controllers import StoreFeed
from podwire.cluster.loopback import LoopbackHttp
from podwire.controllers.kinds import CLAIMS, CONFIG_MAPS, EVENTS, PODS, SERVICE_ACCOUNTS, TAINT_RULES, TEMPLATES
from podwire.objects.claims import FINALIZER
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports.clock import SystemClock
from podwire.transports.credentials import load
from podwire.transports.http_client import connect
from tests.eventually import eventually_async

ADMIN = Certificate("admin", ("system:masters",))
V1 = "resource.k8s.io/v1"
SPEC = {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nics"}}]}}
RESULT = {"request": "nic", "driver": "net.example", "pool": "n1", "device": "eth2"}
TAINT = {"key": "broken", "effect": "NoExecute"}


@pytest.fixture
async def server(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        yield server


@contextlib.asynccontextmanager
async def at_work(client, feed, api):
    task = asyncio.create_task(controllers.run(client, feed, SystemClock(), root_ca="PEM"))
    try:
        await eventually_async(lambda: find(api, CONFIG_MAPS, "kube-root-ca.crt"))
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def bare(server):
    """A client of a server whose controllers do not work yet."""
    return Client(LoopbackHttp(server.assembled.server.handle, ADMIN))


def beside_the_store(server):
    engine = server.assembled.engine
    return Client(LoopbackHttp(server.assembled.server.handle, ADMIN)), StoreFeed(engine.store, engine.registry)


@pytest.fixture(params=["store", "https"])
async def api(request, server, bare):
    if request.param == "store":
        async with at_work(*beside_the_store(server), bare):
            yield bare
        return
    async with connect(load(server.kubeconfig)) as http:
        client = Client(http)
        async with at_work(client, controllers.MetadataInformer(client), bare):
            yield bare


@pytest.fixture
async def quick(server, bare):
    """Controllers beside the store only, for what does not depend on the way."""
    async with at_work(*beside_the_store(server), bare):
        yield bare


async def find(api, kind, name, namespace="default"):
    try:
        return await api.get(kind, name, namespace if kind.namespaced else "")
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def made(kind, name, **parts):
    metadata = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


async def make_pod(api, name="web", claim=None, **spec):
    entry = claim or {"resourceClaimTemplateName": "fast"}
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "nic"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "nic", **entry}], **spec}
    spec["automountServiceAccountToken"] = False
    return await api.create(made(PODS, name, spec=spec))


async def make_template(api):
    labelled = {"metadata": {"labels": {"tier": "fast"}}, "spec": SPEC}
    return await api.create(made(TEMPLATES, "fast", spec=labelled))


async def status_of(api, pod="web"):
    """The name of the claim that was generated for a pod, once its status tells."""

    async def reported():
        statuses = (await api.get(PODS, pod, "default"))["status"].get("resourceClaimStatuses")
        return statuses and statuses[0]["resourceClaimName"]

    return await eventually_async(reported)


async def allocate(api, name, *pods, **result):
    """Writes as a scheduler does: its finalizer, then one status with devices and holders."""
    claim = await api.get(CLAIMS, name, "default")
    claim["metadata"]["finalizers"] = [FINALIZER]
    claim = await api.replace(claim)
    holders = [{"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]} for pod in pods]
    claim["status"] = {"allocation": {"devices": {"results": [{**RESULT, **result}]}}, "reservedFor": holders}
    return await api.replace(claim, subresource="status")


async def finish(api, name, phase="Succeeded"):
    await api.patch(PODS, name, {"status": {"phase": phase}}, "default", subresource="status")


async def absent(api, kind, name):
    async def check():
        return await find(api, kind, name) is None

    await eventually_async(check)


async def reported(api, reason):
    async def check():
        events = (await api.list(EVENTS, Scope(namespace="default"))).items
        return [event["message"] for event in events if event["reason"] == reason]

    return await eventually_async(check)


async def test_a_pod_gets_its_claim_from_the_template(api):
    await make_template(api)
    pod = await make_pod(api)

    name = await status_of(api)

    claim = await api.get(CLAIMS, name, "default")
    assert name.startswith("web-nic-")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "nic"}
    assert claim["metadata"]["labels"] == {"tier": "fast"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "nics"
    assert len((await api.list(CLAIMS)).items) == 1


async def test_a_claim_and_its_devices_go_with_the_pod(api):
    await make_template(api)
    pod = await make_pod(api)
    name = await status_of(api)
    await allocate(api, name, pod)

    await api.delete(PODS, "web", "default", grace_seconds=0)

    await absent(api, CLAIMS, name)


async def test_a_template_that_comes_late_is_noticed(api):
    await make_pod(api)
    (message,) = await reported(api, "FailedResourceClaimCreation")
    assert message == (
        'PodResourceClaim nic: resource claim template "fast": resourceclaimtemplates.resource.k8s.io "fast" not found'
    )

    await make_template(api)

    assert (await status_of(api)).startswith("web-nic-")
    assert len(await reported(api, "FailedResourceClaimCreation")) == 1


async def test_a_claim_of_a_pod_that_is_over_is_deleted_though_the_pod_stays(quick):
    await make_template(quick)
    pod = await make_pod(quick)
    name = await status_of(quick)
    await allocate(quick, name, pod)

    await finish(quick, "web")

    await absent(quick, CLAIMS, name)
    assert await find(quick, PODS, "web") is not None


async def test_a_manual_claim_is_deallocated_when_its_last_pod_is_finished(quick):
    await quick.create(made(CLAIMS, "mine", spec=SPEC))
    pods = [await make_pod(quick, name, {"resourceClaimName": "mine"}) for name in ("one", "two")]
    await allocate(quick, "mine", *pods)

    await finish(quick, "one", "Failed")

    async def holders():
        return [item["name"] for item in (await quick.get(CLAIMS, "mine", "default"))["status"].get("reservedFor", ())]

    async def only_two():
        return await holders() == ["two"]

    await eventually_async(only_two)
    assert (await quick.get(CLAIMS, "mine", "default"))["status"]["allocation"]
    await quick.delete(PODS, "two", "default", grace_seconds=0)

    async def free():
        claim = await quick.get(CLAIMS, "mine", "default")
        return not claim["status"] and not claim["metadata"].get("finalizers")

    await eventually_async(free)


async def test_a_claim_is_not_deleted_under_a_pod(quick):
    await quick.create(made(CLAIMS, "mine", spec=SPEC))
    pod = await make_pod(quick, "web", {"resourceClaimName": "mine"})
    await allocate(quick, "mine", pod)

    claim = await quick.delete(CLAIMS, "mine", "default")
    assert claim["metadata"]["deletionTimestamp"]
    await make_template(quick)
    await make_pod(quick, "other")
    await status_of(quick, "other")  # by now the controllers have seen the deletion, too
    assert await find(quick, CLAIMS, "mine") is not None

    await quick.delete(PODS, "web", "default", grace_seconds=0)

    await absent(quick, CLAIMS, "mine")


async def test_a_pod_that_was_bound_without_a_scheduler_holds_its_claim(quick):
    await quick.create(made(CLAIMS, "mine", spec=SPEC))
    other = await make_pod(quick, "other", {"resourceClaimName": "mine"})
    await allocate(quick, "mine", other)

    pod = await make_pod(quick, "web", {"resourceClaimName": "mine"}, nodeName="n1")

    async def reserved():
        claim = await quick.get(CLAIMS, "mine", "default")
        return pod["metadata"]["uid"] in [item["uid"] for item in claim["status"]["reservedFor"]]

    await eventually_async(reserved)


async def test_an_unallocated_claim_is_deleted_with_its_unbound_pod(quick):
    await make_template(quick)
    await make_pod(quick)
    name = await status_of(quick)
    assert (await quick.get(CLAIMS, name, "default"))["metadata"]["finalizers"] == [FINALIZER]

    await quick.delete(PODS, "web", "default", grace_seconds=0)

    await absent(quick, CLAIMS, name)


async def test_a_running_pod_with_its_claim_is_not_read_again(server, bare):
    asked = []

    async def heard(request):
        asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
        return await server.assembled.server.handle(request)

    _, feed = beside_the_store(server)
    async with at_work(Client(LoopbackHttp(heard, ADMIN)), feed, bare):
        await make_template(bare)
        await bound_pod(bare)
        await make_pod(bare, "other")
        await status_of(bare, "other")  # by now the controllers have seen all of it
        asked.clear()

        await finish(bare, "web", "Running")
        device = {"driver": "net.example", "pool": "n1", "device": "eth2", "data": {"reported": "by a driver"}}
        await bare.patch(CLAIMS, "web", {"status": {"devices": [device]}}, "default", subresource="status")
        await make_pod(bare, "third")
        await status_of(bare, "third")

        assert "GET third" in asked
        assert "GET web" not in asked


async def test_a_deleted_generated_claim_is_created_again(quick):
    await make_template(quick)
    await make_pod(quick)
    first = await status_of(quick)

    await quick.delete(CLAIMS, first, "default")

    async def another():
        name = await status_of(quick)
        return name != first and name

    second = await eventually_async(another)
    assert await find(quick, CLAIMS, second) is not None


async def test_changes_during_downtime_are_reconciled(server, bare):
    await bare.create(made(SERVICE_ACCOUNTS, "default"))
    await make_template(bare)
    await make_pod(bare)
    await bare.create(made(CLAIMS, "left", spec=SPEC))
    gone = await make_pod(bare, "gone", {"resourceClaimName": "left"})
    await allocate(bare, "left", gone)
    await bare.delete(PODS, "gone", "default", grace_seconds=0)

    async with at_work(*beside_the_store(server), bare):
        await status_of(bare)

        async def free():
            return not (await bare.get(CLAIMS, "left", "default"))["status"]

        await eventually_async(free)


async def test_claims_survive_controllers_that_die_between_claim_and_status(server, bare):
    """The claim is found by its owner, and no second one is made."""
    await bare.create(made(SERVICE_ACCOUNTS, "default"))
    await make_template(bare)
    pod = await make_pod(bare)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"], "controller": True}
    orphan = made(CLAIMS, "web-nic-orphan", spec=SPEC)
    orphan["metadata"] |= {
        "ownerReferences": [owner],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "nic"},
    }
    await bare.create(orphan)

    async with at_work(*beside_the_store(server), bare):
        assert await status_of(bare) == "web-nic-orphan"
        assert len((await bare.list(CLAIMS)).items) == 1


async def bound_pod(api, name="web", **toleration):
    await api.create(made(CLAIMS, name, spec=SPEC))
    pod = await make_pod(api, name, {"resourceClaimName": name}, nodeName="n1")
    tolerations = {"tolerations": [{"operator": "Exists", **toleration}]} if toleration else {}
    await allocate(api, name, pod, **tolerations)
    return pod


def slice_of(*taints):
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "net.example", "nodeName": "n1", "pool": pool}
    device = {"name": "eth2", **({"taints": list(taints)} if taints else {})}
    return {"apiVersion": V1, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {**spec, "devices": [device]}}


async def leaving(api, name="web"):
    async def check():
        pod = await find(api, PODS, name)
        return pod is not None and pod["metadata"].get("deletionTimestamp") and pod

    return await eventually_async(check)


async def test_a_pod_leaves_a_device_that_is_tainted_by_its_driver(api):
    noexecute_taints = await api.create(slice_of())
    await bound_pod(api)

    await api.replace({**noexecute_taints, "spec": slice_of(TAINT)["spec"]})

    pod = await leaving(api)
    (condition,) = [condition for condition in pod["status"]["conditions"] if condition["type"] == "DisruptionTarget"]
    assert (condition["reason"], condition["message"]) == (
        "DeletionByDeviceTaintManager",
        "Device Taint manager: deleting due to NoExecute taint",
    )
    assert await reported(api, "DeviceTaintManagerEviction") == ["Marking for deletion"]


async def condition_of(api):
    async def check():
        return (await api.get(TAINT_RULES, "r"))["status"].get("conditions")

    return (await eventually_async(check))[0]


def rule(effect="NoExecute"):
    return made(TAINT_RULES, "r", spec={"deviceSelector": {"device": "eth2"}, "taint": {**TAINT, "effect": effect}})


async def test_a_pod_leaves_a_device_that_is_tainted_by_a_rule(quick):
    await bound_pod(quick)

    await quick.create(rule())

    await leaving(quick)
    condition = await condition_of(quick)
    assert (condition["reason"], condition["message"]) in (
        ("PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
        ("Completed", "1 pod evicted since starting the controller."),  # reported after ten seconds
    )


async def test_a_pod_that_tolerates_the_taint_keeps_its_device_when_the_rule_goes(quick):
    await bound_pod(quick, tolerationSeconds=3600)
    await bound_pod(quick, "hasty")
    await quick.create(rule())
    condition = await condition_of(quick)
    assert (condition["reason"], condition["status"]) == ("PodsPendingEviction", "True")
    await leaving(quick, "hasty")

    await quick.delete(TAINT_RULES, "r")

    async def relented():
        return "Cancelling deletion" in await reported(quick, "DeviceTaintManagerEviction")

    await eventually_async(relented)
    assert "deletionTimestamp" not in (await quick.get(PODS, "web", "default"))["metadata"]


async def test_a_rule_with_effect_none_reports_its_would_be_evictions(quick):
    await quick.create(slice_of())
    await bound_pod(quick)

    await quick.create(rule("None"))

    condition = await condition_of(quick)
    assert condition["reason"] == "NoEffect"
    assert condition["message"].startswith(
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace"
    )
    assert "deletionTimestamp" not in (await quick.get(PODS, "web", "default"))["metadata"]

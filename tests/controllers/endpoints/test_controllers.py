"""The endpoint controllers on a real API server."""

from podwire.controllers.endpoints import endpoint_slice, mirroring
from podwire.controllers.endpoints.trigger_times import ANNOTATION
from podwire.controllers.kinds import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from podwire.protocols.k8sapi.client_side import Scope
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async


def service(**spec):
    metadata = {"name": "web", "namespace": "default", "labels": {"team": "shop"}}
    given = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": given}


async def add_pod(cluster, name, ip, *, ready=True):
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}
    await cluster.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await set_ready(cluster, name, ip, ready=ready)


async def set_ready(cluster, name, ip, *, ready):
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
    await cluster.api.patch(PODS, name, {"status": status}, "default", subresource="status")


async def slices(cluster, manager=endpoint_slice.MANAGER):
    found = (await cluster.api.list(ENDPOINT_SLICES, Scope(namespace="default"))).items
    return [row for row in found if row["metadata"]["labels"].get("endpointslice.kubernetes.io/managed-by") == manager]


async def addresses(cluster, manager=endpoint_slice.MANAGER):
    return {
        (address, row["conditions"]["ready"])
        for slice_ in await slices(cluster, manager)
        for row in slice_.get("endpoints") or ()
        for address in row["addresses"]
    }


async def shows(cluster, expected, manager=endpoint_slice.MANAGER):
    async def look():
        found = await addresses(cluster, manager)
        assert found == expected, found
        return True

    await eventually_async(look)


async def endpoints(cluster):
    try:
        return await cluster.api.get(ENDPOINTS, "web", "default")
    except ApiError as error:
        if error.code != 404:
            raise
        return None


async def test_slices_and_endpoints_follow_the_pods_of_a_service(cluster):
    made = await cluster.api.create(service())
    (empty,) = await eventually_async(lambda: slices(cluster))
    assert empty["metadata"]["annotations"] == {ANNOTATION: made["metadata"]["creationTimestamp"]}
    await add_pod(cluster, "a", "10.0.0.1")
    await add_pod(cluster, "b", "10.0.0.2", ready=False)
    await shows(cluster, {("10.0.0.1", True), ("10.0.0.2", False)})
    await set_ready(cluster, "b", "10.0.0.2", ready=True)
    await shows(cluster, {("10.0.0.1", True), ("10.0.0.2", True)})
    (slice_,) = await slices(cluster)
    assert slice_["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert slice_["metadata"]["labels"]["team"] == "shop"
    assert slice_["metadata"]["ownerReferences"][0]["kind"] == "Service"

    async def both():
        (subset,) = (await endpoints(cluster))["subsets"]
        return [row["ip"] for row in subset["addresses"]] == ["10.0.0.1", "10.0.0.2"]

    await eventually_async(both)
    await cluster.api.delete(PODS, "a", "default", grace_seconds=0)
    await shows(cluster, {("10.0.0.2", True)})
    await cluster.api.delete(SERVICES, "web", "default")

    async def gone():
        return not await slices(cluster) and await endpoints(cluster) is None

    await eventually_async(gone)


async def test_a_changed_selector_and_labels_change_the_slices(cluster):
    await cluster.api.create(service())
    await add_pod(cluster, "a", "10.0.0.1")
    await shows(cluster, {("10.0.0.1", True)})
    await cluster.api.patch(PODS, "a", {"metadata": {"labels": {"app": "other"}}}, "default")
    await shows(cluster, set())
    await cluster.api.patch(SERVICES, "web", {"spec": {"selector": {"app": "other"}}}, "default")
    await shows(cluster, {("10.0.0.1", True)})
    before = len(cluster.requests())
    await cluster.api.patch(SERVICES, "web", {"metadata": {"annotations": {"note": "nothing"}}}, "default")
    await cluster.api.patch(PODS, "a", {"metadata": {"annotations": {"note": "nothing"}}}, "default")
    await add_pod(cluster, "last", "10.0.0.9")  # does not match; its own requests are ours
    writes = [row for row in cluster.requests()[before:] if row[0] in ("POST", "PUT", "PATCH", "DELETE")]
    assert not [row for row in writes if "endpoint" in row[1]]


async def test_endpoints_without_a_selector_are_mirrored(cluster):
    made = service()
    del made["spec"]["selector"]
    await cluster.api.create(made)
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "notReadyAddresses": [{"ip": "2001:db8::1"}],
                "ports": [{"port": 9000}]}]  # fmt: skip
    metadata = {"name": "web", "namespace": "default", "labels": {"by": "hand"}}
    await cluster.api.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
    await shows(cluster, {("192.0.2.1", True), ("2001:db8::1", False)}, mirroring.MANAGER)
    kinds = {slice_["addressType"] for slice_ in await slices(cluster, mirroring.MANAGER)}
    assert kinds == {"IPv4", "IPv6"}
    patch = {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}
    await cluster.api.patch(ENDPOINTS, "web", patch, "default")
    await shows(cluster, set(), mirroring.MANAGER)
    assert await slices(cluster, mirroring.MANAGER) == []


async def test_the_service_of_the_api_server_keeps_its_own_slice(cluster):
    await cluster.api.create(service())
    await eventually_async(lambda: slices(cluster))
    found = (await cluster.api.list(ENDPOINT_SLICES, Scope(namespace="default"))).items
    assert len([row for row in found if row["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"]) <= 1


async def test_a_hundred_and_one_pods_need_two_slices(cluster):
    await cluster.api.create(service())
    for number in range(101):
        await add_pod(cluster, f"p{number}", f"10.0.1.{number}")

    async def full():
        found = await slices(cluster)
        assert sorted(len(row["endpoints"]) for row in found) == [1, 100]
        return True

    await eventually_async(full)

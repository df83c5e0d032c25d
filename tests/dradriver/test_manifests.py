"""Objects of `podwire manifests network-driver`, on a real API server."""

import pytest

from podwire.dradriver.names import CLAIMS, PODS, SLICES
from podwire.dradriver.publish import manifests
from podwire.dradriver.publish.manifests import Deployment, network_driver
from podwire.dradriver.publish.sockets import sockets
from podwire.protocols.cel import compile_expression
from podwire.protocols.cel.devices import VARIABLES
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

DRIVER = "net.podwire.dev"
ACCOUNT = "system:serviceaccount:podwire:podwire-network-driver"


class As:
    """The admin's HTTP, on behalf of the driver's account, on a node."""

    def __init__(self, http, node="node-1"):
        extra = {"impersonate-extra-authentication.kubernetes.io%2fnode-name": node} if node else {}
        groups = "system:serviceaccounts,system:serviceaccounts:podwire,system:authenticated"
        self.http, self.whose = http, {"impersonate-user": ACCOUNT, "impersonate-group": groups, **extra}

    async def request(self, method, path, *, query=(), headers=None, body=b""):
        return await self.http.request(method, path, query=query, headers={**(headers or {}), **self.whose}, body=body)


@pytest.fixture
async def http(api_server, admin_http):
    """Of a server with everything applied."""
    admin = Client(admin_http)
    for item in network_driver(Deployment()):
        await admin.create(item)
    await eventually_async(lambda: len(api_server.assembled.policies.active.bound) == 2)
    await eventually_async(lambda: allowed(Client(As(admin_http)).list(SLICES)))
    return admin_http


async def allowed(call):
    return not await why_not(call)


async def why_not(call):
    try:
        await call
    except ApiError as error:
        return str(error)
    return ""


def slice_of(node, driver=DRIVER, name="s"):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "eth1"}]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def allocated(node="node-1"):
    result = {"request": "nic", "driver": DRIVER, "pool": node, "device": "eth1"}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}


async def test_the_driver_writes_slices_of_its_own_node_alone(http):
    driver, elsewhere, lost = Client(As(http)), Client(As(http, "node-2")), Client(As(http, ""))
    made = await driver.create(slice_of("node-1"))
    made["spec"]["devices"].append({"name": "eth2"})
    await driver.replace(made)
    alone = "the driver of a node changes the slices of that node alone"
    assert alone in await why_not(driver.create(slice_of("node-2", name="t")))
    assert alone in await why_not(elsewhere.delete(SLICES, "s"))
    assert "the slices of other drivers are theirs" in await why_not(
        driver.create(slice_of("node-1", "x.example", "t"))
    )
    assert "does not say on which node" in await why_not(lost.create(slice_of("node-1", name="t")))
    await driver.delete(SLICES, "s")
    await Client(http).create(slice_of("node-2", name="t"))


async def test_driver_may_publish_its_devices_and_read_its_claims(http):
    admin, driver = Client(http), Client(As(http))
    requests = [{"name": "nic", "exactly": {"deviceClassName": "whole.net.podwire.dev"}}]
    meta = {"name": "c", "namespace": "default"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta}
    await admin.create({**claim, "spec": {"devices": {"requests": requests}}})
    await admin.patch(CLAIMS, "c", {"status": {"allocation": allocated()}}, "default", subresource="status")
    document = {"driver": DRIVER, "pool": "node-1", "device": "eth1", "networkData": {"interfaceName": "net1"}}
    applied = {**claim, "status": {"devices": [document]}}
    found = await driver.apply(applied, field_manager="driver", subresource="status", force=True)
    assert found["status"]["devices"][0]["networkData"]["interfaceName"] == "net1"
    assert (await driver.get(CLAIMS, "c", "default"))["metadata"]["name"] == "c"
    other = Client(As(http, "node-2"))
    document["networkData"]["interfaceName"] = "net2"
    assert "resourceclaims/driver" in await why_not(other.apply(applied, field_manager="driver", subresource="status"))
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}}
    await driver.create({**event, "involvedObject": {"kind": "ResourceClaim", "name": "c", "namespace": "default"}})
    assert "not found" in await why_not(driver.get(PODS, "p", "default"))


async def test_driver_has_no_other_permissions(http):
    driver = Client(As(http))
    calls = {
        "claims made": driver.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "d", "namespace": "default"},
                "spec": {"devices": {"requests": []}},
            }
        ),
        "claims listed": driver.list(CLAIMS),
        "pods listed": driver.list(PODS),
        "pods deleted": driver.delete(PODS, "p", "default"),
        "devices allocated": driver.patch(CLAIMS, "c", {"status": {}}, "default", subresource="binding"),
    }
    document = {name: await why_not(call) for name, call in calls.items()}
    assert {name: why for name, why in document.items() if f'User "{ACCOUNT}" cannot' not in why} == {}


@pytest.mark.parametrize(("name", "shared"), [("whole.net.podwire.dev", False), ("shared.net.podwire.dev", True)])
@pytest.mark.parametrize("driver", [DRIVER, "gpu.example.com"])
def test_each_class_selects_its_devices(name, shared, driver):
    [found] = [item for item in network_driver(Deployment()) if item["metadata"]["name"] == name]
    [selector] = found["spec"]["selectors"]
    program = compile_expression(selector["cel"]["expression"], VARIABLES)
    for device_is in (True, False):
        device = {"driver": driver, "allowMultipleAllocations": device_is, "capacity": {}}
        device["attributes"] = {DRIVER: {"shared": device_is}} if driver == DRIVER else {}
        assert program.run({"device": device}) is (driver == DRIVER and device_is is shared)


def daemon_set(**settings):
    [found] = [item for item in network_driver(Deployment(**settings)) if item["kind"] == "DaemonSet"]
    return found["spec"]


def test_two_instances_can_be_there_at_once(tmp_path):
    spec = daemon_set()
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    [container] = spec["template"]["spec"]["containers"]
    assert "ports" not in container, "a port of the host keeps a second instance away"
    assert {item["name"] for item in container["env"]} == {"NODE_NAME", "POD_UID"}
    served = sockets(tmp_path, DRIVER, "u-1").dra
    ready = container["readinessProbe"]["exec"]["command"][-1]
    assert ready == f"test -S {manifests.KUBELET}/{served.relative_to(tmp_path)}".replace("u-1", "$POD_UID")


def test_shared_directories_have_the_same_path_in_the_container_and_on_the_host():
    spec = daemon_set()["template"]["spec"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = {(mount["name"], mount["mountPath"]) for mount in spec["containers"][0]["volumeMounts"]}
    assert set(paths.items()) <= mounts
    assert {"plugins_registry", "plugins", "device-plugins", "pod-resources"} <= {
        path.removeprefix("/var/lib/kubelet/") for path in paths.values()
    }
    assert {manifests.STATE, manifests.CDI, manifests.NRI} <= set(paths.values())


def test_its_places_are_those_that_the_program_has_by_itself():
    from podwire.cluster import network_driver as program

    assert (str(program.KUBELET), str(program.STATE), str(program.CDI)) == (
        manifests.KUBELET,
        manifests.STATE,
        manifests.CDI,
    )


def test_its_arguments_are_those_that_the_program_takes():
    import argparse

    from podwire.cli import network_driver as program

    parser = argparse.ArgumentParser()
    program.configure(parser)
    [container] = daemon_set(kubeconfig="/etc/kubeconfig")["template"]["spec"]["containers"]
    found = parser.parse_args(container["args"])
    assert str(found.config) == "/etc/podwire/network-driver/config.yaml"
    assert found.listen == ("127.0.0.1", 9746)
    assert str(found.kubeconfig) == "/etc/podwire/kubeconfig"


def test_a_changed_file_is_a_changed_pod():
    first, second = (daemon_set(config=text)["template"]["metadata"] for text in ("{}\n", "filter: 'true'\n"))
    assert first["annotations"] != second["annotations"]


def test_the_systems_own_namespace_is_not_made():
    kinds = [item["kind"] for item in network_driver(Deployment(namespace="kube-system"))]
    assert "Namespace" not in kinds
    accounts = [item for item in network_driver(Deployment(namespace="net")) if item["kind"] == "ServiceAccount"]
    assert [account["metadata"]["namespace"] for account in accounts] == ["net"]

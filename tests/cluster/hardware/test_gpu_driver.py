"""The driver of simulated GPUs, beside a real API server and a kubelet that is a gRPC client."""

import asyncio
import contextlib
import json
import tempfile
import uuid
from pathlib import Path

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.hardware import profile_yaml
from podwire.cluster.hardware.gpu_driver import CLAIMS, NODES, SLICES, Paths, drive
from podwire.cluster.hardware.gpus import DRIVER, Refused, allocated_gpus, gpus
from podwire.cluster.hardware.pci_functions import functions
from podwire.protocols.dra import dra_v1_pb2 as dra
from podwire.protocols.dra.methods import PREPARE_V1, PREPARE_V1BETA1, UNPREPARE_V1, V1
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.registration import registration_pb2 as pb
from podwire.protocols.registration.methods import GET_INFO, NOTIFY_REGISTRATION_STATUS
from podwire.transports import credentials, grpc_client, http_client
from tests.eventually import eventually_async

SECONDS = 40.0
NODE = "node-1"
PROFILE = profile_yaml.load("two-numa")


@pytest.fixture
async def api(tmp_path):
    options = Options(data_dir=tmp_path / "api", port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        access = credentials.load(server.kubeconfig)
        async with http_client.connect(access, user_agent="test") as http:
            yield Client(http), server.kubeconfig


@pytest.fixture
def folder():
    """A short one: paths of sockets end at 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pwg-", dir="/tmp") as made:
        yield Path(made)


@contextlib.asynccontextmanager
async def driving(kubeconfig, folder):
    """The driver, until the block ends."""
    paths = Paths(kubelet=folder / "kubelet", cdi=folder / "cdi")
    task = asyncio.ensure_future(drive(PROFILE, NODE, kubeconfig, paths))
    try:
        yield paths
    finally:
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()


async def slices(client):
    """Published slices; none while the API server does not answer."""
    with contextlib.suppress(ApiError, OSError):
        return (await client.list(SLICES)).items
    return []


def node():
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}


async def test_gpus_are_published_with_their_node_and_republished_after_deletion(api, folder):
    client, kubeconfig = api
    async with driving(kubeconfig, folder):
        made = await client.create(node())
        (found,) = await eventually_async(lambda: slices(client))
        assert found["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert [device["name"] for device in found["spec"]["devices"]] == [f"gpu-{number}" for number in range(8)]
        attributes = found["spec"]["devices"][4]["attributes"]
        assert attributes["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:97"}
        assert attributes["resource.kubernetes.io/numaNode"] == {"int": 1}
        await client.delete(SLICES, found["metadata"]["name"])
        (again,) = await eventually_async(lambda: slices(client))
        assert again["metadata"]["uid"] != found["metadata"]["uid"]
        spec = {**again["spec"], "devices": again["spec"]["devices"][:1]}
        await client.replace({**again, "spec": spec})

        async def whole():
            return [now for now in await slices(client) if len(now["spec"]["devices"]) == 8]

        (now,) = await eventually_async(whole)
        assert now["spec"]["pool"]["generation"] > again["spec"]["pool"]["generation"]


async def allocated(client, *devices, name="pair", pool=NODE):
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]}}
    meta = {"name": name, "namespace": "default"}
    claim = await client.create(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": spec}
    )
    results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": device} for device in devices]
    claim["status"] = {"allocation": {"devices": {"results": results}}}
    return await client.replace(claim, subresource="status")


async def test_prepare_returns_the_cdi_devices_of_a_claim(api, folder):
    client, kubeconfig = api
    await client.create(node())
    async with driving(kubeconfig, folder) as paths:
        socket = paths.kubelet / "plugins_registry" / f"{DRIVER}-reg.sock"
        await eventually_async(socket.exists)
        async with grpc_client.connect(socket) as plugin:
            info = await plugin.call(GET_INFO, pb.InfoRequest(), timeout=SECONDS)
            assert (info.type, info.name, info.supported_versions[0]) == ("DRAPlugin", DRIVER, V1)
            await plugin.call(
                NOTIFY_REGISTRATION_STATUS, pb.RegistrationStatus(plugin_registered=True), timeout=SECONDS
            )
        await eventually_async(lambda: slices(client))
        claim = await allocated(client, "gpu-3")
        asked = dra.Claim(namespace="default", name="pair", uid=claim["metadata"]["uid"])
        other = dra.Claim(namespace="default", name="pair", uid=str(uuid.uuid4()))
        async with grpc_client.connect(info.endpoint) as plugin:
            request = dra.NodePrepareResourcesRequest(claims=[asked, other])
            answer = await plugin.call(PREPARE_V1, request, timeout=SECONDS)
            (device,) = answer.claims[asked.uid].devices
            assert (device.pool_name, device.device_name, list(device.request_names)) == (NODE, "gpu-3", ["gpu"])
            assert "was replaced by another claim" in answer.claims[other.uid].error
            beta = await plugin.call(PREPARE_V1BETA1, PREPARE_V1BETA1.request(), timeout=SECONDS)
            assert not beta.claims
            gone = await plugin.call(UNPREPARE_V1, dra.NodeUnprepareResourcesRequest(claims=[asked]), timeout=SECONDS)
            assert gone.claims[asked.uid].error == ""
        (file,) = paths.cdi.iterdir()
        spec = json.loads(file.read_text())
        edits = {f"{spec['kind']}={device['name']}": device["containerEdits"] for device in spec["devices"]}
        assert edits[device.cdi_device_ids[0]]["env"][0].startswith("PODWIRE_GPU_3=GPU-")
    assert await client.get(CLAIMS, "pair", "default")
    assert await client.get(NODES, NODE)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        pytest.param({}, "has no allocation", id="not allocated"),
        pytest.param({"pool": "node-2", "device": "gpu-0"}, "node-2/gpu-0 is not a GPU of node node-1", id="elsewhere"),
        pytest.param({"pool": NODE, "device": "gpu-9"}, "node-1/gpu-9 is not a GPU of node node-1", id="one too many"),
    ],
)
def test_a_claim_that_has_none_of_these_gpus_is_refused(status, says):
    claim = {"metadata": {"name": "pair", "namespace": "default", "uid": "u"}}
    if status:
        claim["status"] = {"allocation": {"devices": {"results": [{"request": "gpu", "driver": DRIVER, **status}]}}}
    with pytest.raises(Refused, match=says):
        allocated_gpus(claim, "u", NODE, gpus(NODE, functions(PROFILE)))


def test_devices_of_other_drivers_are_not_ours_to_prepare():
    results = [{"request": "nic", "driver": "net.podwire.dev", "pool": NODE, "device": "rail0"}]
    claim = {"metadata": {"name": "pair", "uid": "u"}, "status": {"allocation": {"devices": {"results": results}}}}
    assert allocated_gpus(claim, "u", NODE, gpus(NODE, functions(PROFILE))) == []

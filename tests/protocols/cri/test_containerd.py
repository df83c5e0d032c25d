"""The kubelet's side against a runtime that is not ours: what a kubelet asks before it runs its first pod."""

import asyncio
import contextlib

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError, Unimplemented, Unknown
from podwire.transports.grpc_client import connect


@pytest.fixture
async def client(containerd):
    async with connect(containerd) as client:
        await begun(client)
        yield client


async def begun(client) -> None:
    """It listens before it answers."""
    for _ in range(600):
        with contextlib.suppress(Unknown):
            await client.call(methods.VERSION, pb.VersionRequest(version="0.1.0"), timeout=30)
            return
        await asyncio.sleep(0.05)


async def test_containerd_reports_its_version(client):
    result = await client.call(methods.VERSION, pb.VersionRequest(version="0.1.0"), timeout=30)
    assert (result.version, result.runtime_name, result.runtime_api_version) == ("0.1.0", "containerd", "v1")
    assert result.runtime_version


async def test_containerd_reports_its_status(client):
    result = await client.call(methods.STATUS, pb.StatusRequest(verbose=True), timeout=30)
    conditions = {condition.type: condition for condition in result.status.conditions}
    assert conditions["RuntimeReady"].status
    assert not conditions["NetworkReady"].status
    assert conditions["NetworkReady"].reason == "NetworkPluginNotReady"
    assert result.info["config"].startswith("{")


async def test_it_lists_that_it_has_nothing(client):
    ready = pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY), label_selector={"a": "b"})
    pods = await client.call(methods.LIST_POD_SANDBOX, pb.ListPodSandboxRequest(filter=ready), timeout=30)
    containers = await client.call(methods.LIST_CONTAINERS, pb.ListContainersRequest(), timeout=30)
    images = await client.call(methods.LIST_IMAGES, pb.ListImagesRequest(), timeout=30)
    assert (list(pods.items), list(containers.containers), list(images.images)) == ([], [], [])


async def test_containerd_reports_the_image_file_system(client, containerd):
    result = await client.call(methods.IMAGE_FS_INFO, pb.ImageFsInfoRequest(), timeout=30)
    [image] = result.image_filesystems
    assert image.fs_id.mountpoint.startswith(str(containerd.parent / "root"))
    assert image.timestamp > 0


async def test_unknown_things_are_not_found_and_removing_them_succeeds(client):
    with pytest.raises(NotFound, match="sandbox: not found"):
        await client.call(methods.POD_SANDBOX_STATUS, pb.PodSandboxStatusRequest(pod_sandbox_id="nobody"), timeout=30)
    with pytest.raises(NotFound, match="not found"):
        await client.call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(container_id="nothing"), timeout=30)
    for method, request in (
        (methods.REMOVE_POD_SANDBOX, pb.RemovePodSandboxRequest(pod_sandbox_id="nobody")),
        (methods.REMOVE_CONTAINER, pb.RemoveContainerRequest(container_id="nothing")),
    ):
        assert await client.call(method, request, timeout=30) == method.response()
    missing = pb.ImageStatusRequest(image=pb.ImageSpec(image="example.com/none:1"))
    assert not (await client.call(methods.IMAGE_STATUS, missing, timeout=30)).HasField("image")


async def test_calls_younger_than_it_are_unimplemented(client):
    with pytest.raises(Unimplemented):
        await client.call(methods.RUNTIME_CONFIG, pb.RuntimeConfigRequest(), timeout=30)
    with pytest.raises(Unimplemented):
        await anext(client.stream(methods.STREAM_CONTAINERS, pb.StreamContainersRequest(), timeout=30))


async def test_an_unsupported_call_fails_with_containerds_message(client):
    with pytest.raises(RpcError, match="invalid reference format"):
        await client.call(methods.PULL_IMAGE, pb.PullImageRequest(image=pb.ImageSpec(image="No//Such")), timeout=30)

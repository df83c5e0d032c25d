"""No container starts before its pod has its devices, whether NRI is asked or the hook of its CDI file."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import nri_pb2 as pb

NET1 = {"name": "net1"}


async def test_the_cdi_file_has_a_hook_that_lets_containers_start_only_after_the_attachment(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, claim = await node.claimed("lan1", interface=NET1)
        (prepared,) = await node.kubelet.prepare(claim)
        uid = claim["metadata"]["uid"]
        assert list(prepared.devices[0].cdi_device_ids) == [f"net.podwire.dev/claim={uid}-nic"]
        spec = read_json(node.root / f"cdi/net.podwire.dev-claim@{uid}.json")
        (hook,) = spec["containerEdits"]["hooks"]
        edits = spec["devices"][0]["containerEdits"]
        assert (hook["hookName"], edits["env"]) == ("createRuntime", ["PODWIRE_NIC_INTERFACES=net1"])
        sandbox = node.sandbox(pod)
        checked = await ran(node, hook, sandbox)
        assert checked.returncode == 1
        assert "are not attached" in checked.stderr
        await node.host.run_pod_sandbox(sandbox)
        assert (await ran(node, hook, sandbox)).returncode == 0
        assert (await ran(node, hook, node.sandbox(pod, "another"))).returncode == 1
        answer = read_json(edits["mounts"][0]["hostPath"])
        assert answer["requests"][0]["devices"][0]["networkData"]["interfaceName"] == "net1"
        assert answer["requests"][0]["devices"][0]["attributes"]["interface"] == {"string": "lan1"}
        await node.host.stop_pod_sandbox(sandbox)
        assert (await ran(node, hook, sandbox)).returncode == 1


def read_json(path):
    return json.loads(Path(path).read_text())


async def ran(node, hook, sandbox):
    return await asyncio.to_thread(checked_by, hook, node.netns_of(sandbox))


def checked_by(hook, netns):
    """The hook's answer about a container in that namespace."""
    container = ["nsenter", f"--net={netns}", "sh", "-c", "echo inside; exec sleep 100"]
    with subprocess.Popen(container, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline() == b"inside\n"
            state = json.dumps({"ociVersion": "1.0.2", "id": "c", "pid": child.pid})
            argv = [hook["path"], *hook["args"][1:]]
            return subprocess.run(argv, input=state, capture_output=True, text=True, check=False)
        finally:
            child.kill()


async def test_container_is_refused_until_its_pod_is_attached_and_gets_the_interface_names(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        pod, _ = await node.prepared("lan1", interface=NET1)
        sandbox = node.sandbox(pod)
        container = pb.Container(id="c1", name="main", pod_sandbox_id=sandbox.id)
        with pytest.raises(RpcError, match="network devices of pod default/pod are not attached"):
            await node.host.create_container(sandbox, container)
        await node.host.run_pod_sandbox(sandbox)
        adjusted = await node.host.create_container(sandbox, container)
        assert {item.key: item.value for item in adjusted.adjust.env} == {"PODWIRE_NETWORK_INTERFACES": "net1"}
        await node.host.stop_pod_sandbox(sandbox)


async def test_a_pod_without_claims_is_left_alone(driver_node):
    node = driver_node
    async with node.driving():
        sandbox = node.sandbox(await node.pod())
        await node.host.run_pod_sandbox(sandbox)
        adjusted = await node.host.create_container(sandbox, pb.Container(id="c1", pod_sandbox_id=sandbox.id))
        assert adjusted.adjust == pb.ContainerAdjustment()
        await node.host.stop_pod_sandbox(sandbox)

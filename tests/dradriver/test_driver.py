"""The driver between a kubelet that is plain grpcio, a real API server, a real NRI host and real links."""

import asyncio

from podwire.dradriver.parameters import API_VERSION, KIND

PATIENCE = 60.0


def parameters_of(**fields):
    return {"apiVersion": API_VERSION, "kind": KIND, **fields}


async def test_a_whole_link_goes_into_its_pod_and_comes_back(driver_node):
    node = driver_node
    node.veth("lan1", "10.7.0.1/24")
    async with node.driving():
        await node.kubelet.register()
        await node.offered("lan1")
        before = node.ip("addr show dev lan1")
        pod = await node.pod()
        parameters = parameters_of(interface={"name": "net1"})
        claim = await node.claim("lan1", pods=[pod], parameters=parameters)
        (prepared,) = await node.kubelet.prepare(claim)
        assert prepared.error == ""
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        netns = sandbox.linux.namespaces[0].path
        assert [each["ifname"] for each in node.inside(netns, "link show")] == ["lo", "net1"]
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]
        after = node.ip("addr show dev lan1")
        assert after == before

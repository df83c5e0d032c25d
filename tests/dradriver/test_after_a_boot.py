"""After a boot, whoever had a claim has it prepared again, however many wait for it."""

from podwire.dradriver import preparing
from podwire.dradriver.attaching import attachments
from podwire.dradriver.names import CLAIMS
from podwire.dradriver.parameters import API_VERSION, KIND


async def test_the_pod_that_had_a_claim_is_answered_the_same_while_another_waits(driver_node, monkeypatch):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        await node.offered("lan1")
        pod, other = await node.pod(), await node.pod("other")
        named = {"apiVersion": API_VERSION, "kind": KIND, "interface": {"name": "net1"}}
        claim = await node.claim("lan1", pods=[pod], parameters=named)
        before = (await node.kubelet.prepare(claim))[0]
        assert before.error == ""
        latest = await node.api.get(CLAIMS, "claim", "default")
        latest["status"]["reservedFor"].append({"resource": "pods", "name": "other", "uid": other["metadata"]["uid"]})
        await node.api.replace(latest, subresource="status")
        assert "a network interface is in one pod at a time" in (await node.kubelet.prepare(claim))[0].error
    boot = node.root / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr(attachments, "_BOOT", boot)
    monkeypatch.setattr(preparing, "boot_id", lambda: "another")
    async with node.driving():
        await node.offered("lan1")
        assert (await node.kubelet.prepare(claim))[0] == before
        assert "a network interface is in one pod at a time" in (await node.kubelet.prepare(claim))[0].error
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert node.inside(sandbox.linux.namespaces[0].path, "link show dev net1")
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]

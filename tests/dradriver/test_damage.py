"""A record that cannot be read: who hears of it, and that nothing of its claim is kept for ever."""

import uuid

import pytest

from podwire.cluster import claim_traces
from podwire.cluster.leakcheck import leaks
from podwire.dradriver.addressing.pools import parse_pools
from podwire.dradriver.config import Config
from podwire.dradriver.explaining import seen_on_host
from podwire.dradriver.inventory.config import config
from podwire.dradriver.names import EVENTS
from podwire.dradriver.parameters import API_VERSION, KIND
from podwire.protocols.k8sapi.client_side import Scope

INTERFACE = {"name": "net1", "kind": "veth", "addressPool": "lab"}
PARAMETERS = {"apiVersion": API_VERSION, "kind": KIND, "interface": INTERFACE}


async def told_of(node, reason):
    listed = (await node.api.list(EVENTS, Scope(namespace="default"))).items
    return {each["involvedObject"]["kind"]: each["message"] for each in listed if each["reason"] == reason}


def leaked(node):
    state = node.root / "s"
    (state / "network-driver").parent.mkdir(exist_ok=True)
    if not (state / "network-driver").exists():
        (state / "network-driver").symlink_to(node.root / "state")
    found = claim_traces.found(state, node.root, node.kubelet.directory)
    return leaks(found, set(claim_traces.owners(state)))


@pytest.mark.parametrize("whole", [True, False], ids=["a letter is another", "empty"])
async def test_a_damaged_record_is_told_of_and_nothing_is_kept_for_its_claim(driver_node, whole):
    node = driver_node
    node.ip("link add br0 type bridge")
    node.config = Config(offering=config({}), pools=parse_pools({"lab": {"subnet": "10.9.0.0/24"}}))
    async with node.driving():
        await node.offered("br0")
        pod = await node.pod()
        claim = await node.claim("br0", pods=[pod], parameters=PARAMETERS, shareID=str(uuid.uuid4()))
        assert (await node.kubelet.prepare(claim))[0].error == ""
        assert leaked(node) == []
    (record,) = (node.root / "state/records").glob("*/*.json")
    record.write_text(record.read_text().replace("net1", "net9", 1) if whole else "")
    async with node.driving() as driver:
        told = "the record of device br0 was damaged and is put aside as"
        if whole:
            events = await node.until(lambda: told_of(node, "NetworkDeviceRecordDamaged"))
            await node.until(lambda: _both(node))
            assert told in events.popitem()[1]
        assert told in seen_on_host(node.root / "state", claim["metadata"]["uid"]).damaged[0].told
        assert "podwire_network_driver_damaged_records 1" in await driver.metrics()
        assert [each.kind for each in leaked(node) if each.name.endswith(f"{record.stem}.damaged")] == [
            "damaged record"
        ]
        assert await node.kubelet.unprepare(claim) == [""]
        assert leaked(node) == []
        assert list((node.root / "state/records").iterdir()) == []
        assert seen_on_host(node.root / "state", claim["metadata"]["uid"]).damaged == ()
        again = await node.claim("br0", name_="again", pods=[pod], parameters=PARAMETERS, shareID=str(uuid.uuid4()))
        assert (await node.kubelet.prepare(again))[0].error == "", "the address is free again"


async def _both(node):
    return set(await told_of(node, "NetworkDeviceRecordDamaged")) == {"Pod", "ResourceClaim"}


async def test_a_whole_link_whose_record_is_damaged_does_not_die_with_its_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    named = {"apiVersion": API_VERSION, "kind": KIND, "interface": {"name": "net1"}}
    async with node.driving():
        await node.offered("lan1")
        pod = await node.pod()
        claim = await node.claim("lan1", pods=[pod], parameters=named)
        await node.kubelet.prepare(claim)
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
    (record,) = (node.root / "state/records").glob("*/*.json")
    record.write_text("")
    async with node.driving() as driver:
        await driver.plugin.synchronize([sandbox], [])
        await node.host.stop_pod_sandbox(sandbox)
        node.namespaces.remove(sandbox.id)
        assert await node.kubelet.unprepare(claim) == [""]
        (link,) = node.ip("link show dev lan1")
        assert "ifalias" not in link
        assert list((node.root / "state/netns").iterdir()) == []
        await node.offered("lan1")

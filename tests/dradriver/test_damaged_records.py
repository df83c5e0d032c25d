"""A record that cannot be read: who hears of it, and that nothing of its claim is kept for ever."""

import uuid

import pytest

from podwire.dradriver.addresses.pools import parse_pools
from podwire.dradriver.claims.explanation import seen_on_host
from podwire.dradriver.config import Config
from podwire.dradriver.inventory.config import config
from podwire.inspect import leftovers
from podwire.inspect.leakcheck import leaks
from tests.eventually import eventually_async

SHARE = {"name": "net1", "kind": "veth", "addressPool": "lab"}


def leaked(node):
    state = node.root / "s"
    (state / "network-driver").parent.mkdir(exist_ok=True)
    if not (state / "network-driver").exists():
        (state / "network-driver").symlink_to(node.root / "state")
    found = leftovers.claim_resources(state, node.root, node.kubelet.directory)
    return leaks(found, set(leftovers.claim_owners(state)))


@pytest.mark.parametrize("whole", [True, False], ids=["a letter is another", "empty"])
async def test_damaged_record_is_reported_and_unprepare_removes_it(driver_node, whole):
    node = driver_node
    node.ip("link add br0 type bridge")
    node.config = Config(offering=config({}), pools=parse_pools({"lab": {"subnet": "10.9.0.0/24"}}))
    async with node.driving():
        claim, sandbox = await node.attached("br0", interface=SHARE, shareID=str(uuid.uuid4()))
        assert leaked(node) == []
    (record,) = (node.root / "state/records").glob("*/*.json")
    record.write_text(record.read_text().replace("net1", "net9") if whole else "")
    async with node.driving() as driver:
        result = "the record of device br0 was damaged and is quarantined as"
        if whole:
            events = await node.both_events("NetworkDeviceRecordDamaged")
            assert all(result in message for _, message in events)
        assert result in seen_on_host(node.root / "state", claim["metadata"]["uid"]).damaged[0].message
        assert "podwire_network_driver_damaged_records 1" in await driver.metrics()
        assert [item.kind for item in leaked(node) if item.name.endswith(f"{record.name}.damaged")] == [
            "damaged record"
        ]
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]
        assert leaked(node) == []
        assert list((node.root / "state/records").iterdir()) == []
        assert seen_on_host(node.root / "state", claim["metadata"]["uid"]).damaged == ()
        pod = await node.pod("next")
        again = await node.claim("br0", name_="again", pods=[pod], interface=SHARE, shareID=str(uuid.uuid4()))
        assert (await node.kubelet.prepare(again))[0].error == "", "the address is free again"


async def test_whole_link_of_a_damaged_record_survives_its_pod(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        claim, sandbox = await node.attached("lan1", interface={"name": "net1"})
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


async def test_damaged_boot_file_does_not_keep_the_driver_from_starting(driver_node):
    node = driver_node
    node.veth("lan1")
    (node.root / "state").mkdir(mode=0o700)
    (node.root / "state/boot").write_bytes(b"\xff\x00")
    async with node.driving():
        claim, sandbox = await node.attached("lan1", interface={"name": "net1"})
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]


async def test_published_device_whose_copy_is_damaged_is_described_from_the_record(driver_node):
    node = driver_node
    node.veth("lan1")
    async with node.driving():
        listed = await node.offered("lan1")
        await node.attached("lan1", interface={"name": "net1"})
    (node.root / "state/listed/lan1.json").write_bytes(b"{")
    async with node.driving():
        again = await node.offered("lan1")
        for name in ("interface", "kind", "mac", "mtu", "shared", "virtual"):
            assert again["attributes"][name] == listed["attributes"][name]


@pytest.mark.parametrize("damage", [b"", b"\x00\xff{", b"[]"], ids=["empty", "garbage", "another value"])
async def test_claim_is_prepared_again_when_its_record_is_damaged_before_the_pod_starts(driver_node, damage):
    node = driver_node
    node.veth("lan1", "192.0.2.1/24")
    async with node.driving():
        pod, claim = await node.prepared("lan1", interface={"name": "net1"})
    (record,) = (node.root / "state/records").glob("*/*.json")
    record.write_bytes(damage)
    async with node.driving() as driver:
        await eventually_async(lambda: record.exists() and not driver._dependencies.damaged.list())
        events = await eventually_async(lambda: node.events("NetworkDeviceRecordDamaged"))
        assert "ResourceClaim" in {about for about, _ in events}
        sandbox = node.sandbox(pod)
        await node.host.run_pod_sandbox(sandbox)
        assert node.inside(sandbox, "-4 addr show dev net1")[0]["addr_info"][0]["local"] == "192.0.2.1"
        await node.host.stop_pod_sandbox(sandbox)
        assert await node.kubelet.unprepare(claim) == [""]

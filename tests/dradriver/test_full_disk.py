"""The driver's disk is full: pods still end, and their devices and addresses are free afterwards."""

from podwire.dradriver.addresses.pools import parse_pools
from podwire.dradriver.config import Config
from podwire.dradriver.inventory.config import config
from podwire.linux import syscalls
from tests.dradriver.support import fill

NET1 = {"name": "net1", "addressPool": "lab"}


async def test_pod_ends_and_its_claim_is_unprepared_on_a_full_disk(driver_node):
    node = driver_node
    node.veth("lan1")
    node.config = Config(offering=config({}), pools=parse_pools({"lab": {"subnet": "10.9.0.0/30"}}))
    state = node.root / "state"
    state.mkdir(mode=0o700)
    syscalls.mount("tmpfs", str(state), "tmpfs", 0, "size=4m,mode=0700")
    async with node.driving():
        before = node.ip("link show dev lan1")
        claim, sandbox = await node.attached("lan1", interface=NET1)
        filler = fill(state)
        await node.host.stop_pod_sandbox(sandbox)
        assert node.links_in(sandbox) == []
        assert await node.kubelet.unprepare(claim) == [""]
        assert list((state / "records").glob("*/*")) == []
        after = node.ip("link show dev lan1")
        assert {**after[0], "ifindex": 0, "link_index": 0} == {**before[0], "ifindex": 0, "link_index": 0}
        filler = fill(state)  # what was removed left some space
        pod = await node.pod("next")
        waiting = await node.claim("lan1", name_="next", pods=[pod], interface=NET1)
        (answer,) = await node.kubelet.prepare(waiting)
        assert "No space left on device" in answer.error
        filler.unlink()
        (answer,) = await node.kubelet.prepare(waiting)
        assert answer.error == "", "the only address of the pool is free"
        assert await node.kubelet.unprepare(waiting) == [""]

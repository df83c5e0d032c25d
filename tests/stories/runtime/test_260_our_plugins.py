"""The same pods on podwire's own CNI plugins: bridge, host-local and portmap."""

import asyncio
import contextlib
import os
import random
import signal
import time

import pytest

from podwire.cniplugins.install import install
from podwire.linux.nft.table import TABLE
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import RpcError

SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or int(time.time()) // 3600
POINTS = ["runtime.cni-remembered", "runtime.cni-added", "runtime.sandbox-attached", "runtime.cni-deleted"]


@pytest.fixture
def ours(own):
    programs = own.prefix / "opt/cni/bin"
    install(str(programs))
    own.plugins = [programs]
    records = str(own.prefix / "attachments")
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "story0", "isGateway": True, "ipMasq": True, "dataDir": records, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "dataDir": records}
    own.configure({"cniVersion": "1.0.0", "name": "story", "plugins": [bridge, portmap]})
    return own


def left(own):
    """Leftovers of all attachments: records, marked links, elements of our table."""
    files = [str(path) for path in (own.prefix / "attachments").rglob("*@*")]
    return [*own.leaks(), *files]


async def test_pods_reach_each_other_and_are_reached_by_a_port_of_the_host(ours, kubelet_of):
    ours.start()
    async with kubelet_of(ours) as cri:
        config = cri.pod_config()
        config.port_mappings.add(container_port=8000, host_port=18000)
        one, two = await cri.run(config), await cri.run()
        serving = await cri.start(one, "echo hello > /tmp/index.html; exec httpd -f -p 8000 -h /tmp")
        pinging = cri.container_config()
        pinging.linux.security_context.capabilities.add_capabilities.append("NET_RAW")
        id_ = await cri.start(two, config=pinging)
        await cri.said(id_, "ping", "-c1", "-W2", one.ip)
        assert await cri.said(id_, f"wget -qO- http://{one.ip}:8000") == "hello\n"
        assert await cri.said(id_, "wget -qO- http://10.77.0.1:18000") == "hello\n"
        assert TABLE in ours.space.output("nft", "list", "tables")
        assert ours.leakcheck() == (0, [])
        assert (await cri.status(serving)).state == pb.CONTAINER_RUNNING
        await asyncio.gather(cri.remove(one), cri.remove(two))
        assert ours.leakcheck() == (0, [])
    assert ours.stop() == 0
    assert left(ours) == []


@pytest.mark.parametrize("point", POINTS if os.environ.get("PODWIRE_SOAK") else [random.Random(SEED).choice(POINTS)])
async def test_nothing_is_left_after_a_kill(ours, kubelet_of, point):
    ours.start(PODWIRE_FAILPOINTS=f"{point}=kill")
    async with kubelet_of(ours) as cri:
        with contextlib.suppress(RpcError):
            await cri.remove(await cri.run())
        assert ours.wait() == -signal.SIGKILL
        ours.start()
        await cri.remove_all()
        assert ours.leakcheck() == (0, [])
    assert ours.stop() == 0
    assert left(ours) == []

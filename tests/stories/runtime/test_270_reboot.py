"""The machine is switched off and on again below a runtime: its records are there, and nothing that they tell of."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

from podwire.cniplugins.install import install
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.protocols.cri import cri_pb2 as pb

POOL = 5
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def on_our_plugins(own):
    """With space for a few pods only."""
    programs = own.prefix / "opt/cni/bin"
    install(str(programs), socket=str(own.prefix / "nobody.sock"))
    own.plugins = [programs]
    records = str(own.prefix / "attachments")
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/29"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "story0", "isGateway": True, "ipMasq": True, "dataDir": records, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "dataDir": records}
    own.configure({"cniVersion": "1.1.0", "name": "story", "plugins": [bridge, portmap]})


def switch_off(own) -> None:
    """No process is asked, and nothing is left but the disk."""
    own.kill()
    KernelCgroups().kill(own.options.cgroup_parent)
    for pid in own.processes():
        os.kill(pid, signal.SIGKILL)
    own.space.close()
    shutil.rmtree(own.prefix / "run")
    KernelCgroups().remove(own.options.cgroup_parent)


def switch_on(own) -> None:
    own.space = type(own.space)()
    boot_id = own.prefix / "boot_id"
    boot_id.write_text("00000000-1111-2222-3333-444444444444\n")
    own.space.output("mount", "--bind", boot_id, BOOT_ID)
    own.start()


async def test_after_a_reboot_pods_start_and_old_ones_leave_nothing(own, kubelet_of):
    on_our_plugins(own)
    own.start()
    async with kubelet_of(own) as cri:
        before = await asyncio.gather(*(cri.run() for _ in range(POOL)))
        old = await cri.start(before[0])
        assert len(own.leases()) == POOL, "there is no address for one more"
    switch_off(own)
    switch_on(own)
    async with kubelet_of(own) as cri:
        listed = {item.id: item.state for item in (await cri("ListPodSandbox")).items}
        assert listed == {item.id: pb.SANDBOX_NOTREADY for item in before}
        assert (await cri.status(old)).state == pb.CONTAINER_EXITED
        after = await asyncio.gather(*(cri.run(cri.pod_config(f"new{number}")) for number in range(POOL)))
        assert len({item.ip for item in after}) == POOL
        await cri.start(after[0])
        assert {item.ip for item in after} == set(own.leases())
        await asyncio.gather(*map(cri.remove, before))
        assert {item.ip for item in after} == set(own.leases()), "who went took nothing from those who came"
        await asyncio.gather(*map(cri.remove, after))
        assert own.leakcheck() == (0, [])
    assert own.stop() == 0
    assert own.leaks() == []
    assert [path for path in (own.prefix / "attachments").glob("*/*") if Path(path).name != ".lock"] == []

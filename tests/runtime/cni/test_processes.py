"""Between processes: who collects garbage while others attach, and what becomes of a plugin that does not end."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.cniplugins.install import install
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.protocols.cni.config import VALID_ATTACHMENTS
from podwire.protocols.grpc_status import DeadlineExceeded
from podwire.runtime.cni import Reconciler
from podwire.runtime.ports import Attachment

SECONDS = 60
HOUR = 3600.0

GATED = """#!/bin/sh
cat >"$0.$CNI_COMMAND"
echo begin $CNI_COMMAND >>"$0.told"
while [ ! -e "$0.open" ]; do sleep 0.02; done
echo end $CNI_COMMAND >>"$0.told"
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}'
"""
HANGING = """#!/bin/sh
[ $CNI_COMMAND = "$(cat $0.verb)" ] || exit 0
sleep 600 &
echo $! >$0.pid
wait
"""


async def until(true):
    """Other processes are told of by files."""
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110 - nobody tells when a file has changed
            await asyncio.sleep(0.02)


@pytest.fixture
def gated(node):
    """A plugin that waits for a gate; what it has told so far, and the gate."""
    program = node.plugin("gated", GATED)
    node.network("gated")
    node.cache = node.cache.with_name("cache")  # where a runtime's is, below the directory of its state
    told, gate = program.with_name("gated.told"), program.with_name("gated.open")
    return lambda: told.read_text().splitlines() if told.exists() else [], gate


def collecting(node):
    """`podwire cni gc`, as somebody types it."""
    words = [sys.executable, "-m", "podwire.cli.main", "cni", "gc", "net", "--conf-dir", node.configs]
    words += ["--bin-dir", node.bin, "--state-dir", node.cache.parent]
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


async def ended(process):
    assert await asyncio.to_thread(process.wait, SECONDS) == 0, process.stdout.read()
    process.stdout.close()


async def test_a_manual_gc_waits_for_an_add_and_spares_its_pod(node, pod, gated):
    told, gate = gated
    network = node.cni(plugin=SECONDS)
    attaching = asyncio.create_task(network.attach(pod))
    await until(lambda: told() == ["begin ADD"])
    manual = collecting(node)
    gate_file = node.cache.parent / "locks/net.gate"
    await until(lambda: _is_held(gate_file))
    assert told() == ["begin ADD"], "it waits"
    gate.touch()
    await attaching
    await ended(manual)
    assert told() == ["begin ADD", "end ADD", "begin GC", "end GC"]
    sent = json.loads((node.bin / "gated.GC").read_text())
    assert sent[VALID_ATTACHMENTS] == [{"containerID": pod.id, "ifname": "eth0"}]
    await network.close()


def _is_held(path: Path) -> bool:
    """Whether some process has locked a file, or waits for that."""
    inode = f":{path.stat().st_ino} "
    return any(inode in line for line in Path("/proc/locks").read_text().splitlines())


async def test_add_waits_for_a_manual_gc_unless_it_was_killed(node, pod, gated):
    told, gate = gated
    network = node.cni(plugin=SECONDS)
    manual = collecting(node)
    await until(lambda: told() == ["begin GC"])
    attaching = asyncio.create_task(network.attach(pod))
    await asyncio.sleep(0.1)
    assert told() == ["begin GC"], "it waits"
    manual.send_signal(signal.SIGKILL)
    manual.communicate()
    await until(lambda: told() == ["begin GC", "begin ADD"])
    gate.touch()
    assert await attaching == ("10.1.0.5",)
    await network.close()


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("verb", ["STATUS", "GC", "DEL"])
async def test_a_hanging_plugin_is_killed_with_its_children_for_each_verb(node, pod, verb):
    program = node.plugin("hangs", HANGING.replace("exit 0", "{ cat >/dev/null; " + _ADDED + " exit 0; }"))
    program.with_name("hangs.verb").write_text(verb)
    node.network("hangs")
    network = node.cni(plugin=3.0)
    told = "hangs failed .*: killed, because it did not end within 3 s"
    match verb:
        case "STATUS":
            assert "killed, because it did not end" in await network.query_status()
            assert "killed, because it did not end" in network.not_ready_reason()
        case "GC":
            [failed] = await network.gc()
            assert "killed, because it did not end" in str(failed)
        case "DEL":
            await network.attach(pod)
            with pytest.raises(DeadlineExceeded, match=told):
                await network.detach(pod)
            assert network.pending == {pod.id}
    child = int(program.with_name("hangs.pid").read_text())
    await until(lambda: not _lives(child))
    await network.close()


_ADDED = """[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}';"""


async def test_the_deadline_of_a_plugin_is_that_of_its_ipam_too(node, tmp_path):
    """Ours, as a program, with an IPAM of somebody else that hangs: nobody is left who could lease an address later."""
    install(str(node.bin), force=True, socket=str(tmp_path / "nobody.sock"))
    ipam = node.plugin("ipam", HANGING)
    ipam.with_name("ipam.verb").write_text("ADD")
    node.network({"type": "bridge", "bridge": "none0", "dataDir": str(tmp_path / "records"), "ipam": {"type": "ipam"}})
    namespaces = KernelNamespaces(tmp_path / "netns")
    path = namespaces.create("a").path
    network = node.cni(plugin=6.0)
    try:
        with pytest.raises(DeadlineExceeded, match="bridge failed ADD: killed"):
            await network.attach(Attachment(id="a", netns=path, name="a", namespace="default", uid="a"))
        child = int(ipam.with_name("ipam.pid").read_text())
        await until(lambda: not _lives(child))
        assert await network.attached() == set()
    finally:
        namespaces.remove("a")
        await network.close()


async def test_gc_runs_every_hour(node, monkeypatch):
    node.network("one")
    loop, ahead = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])
    network = node.cni(plugin=HOUR * 10)

    async def nothing(_ids):
        pass

    def collections():
        return [each for each in node.calls() if each["verb"] == "GC"]

    async with Reconciler(network, nothing).running():
        await until(lambda: len(collections()) == 1)
        ahead[0] += HOUR / 2
        await asyncio.sleep(0.2)
        assert len(collections()) == 1
        for many in (2, 3):
            ahead[0] += HOUR
            await until(lambda many=many: len(collections()) == many)
    await network.close()

"""Between processes: who collects garbage while others attach, and what becomes of a plugin that does not end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.cniplugins.install import install
from podwire.linux.proc.marked import marked_environment
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.protocols.cni.caller import VARIABLE
from podwire.protocols.cni.config import VALID_ATTACHMENTS
from podwire.protocols.grpc_status import DeadlineExceeded, FailedPrecondition
from podwire.runtime.cni import Reconciler
from podwire.runtime.ports import Attachment

SECONDS = 60
HOUR = 3600.0

GATED = """#!/bin/sh
cat >"$0.$CNI_COMMAND"
echo begin $CNI_COMMAND >>"$0.calls"
while [ ! -e "$0.open" ]; do sleep 0.02; done
echo end $CNI_COMMAND >>"$0.calls"
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}'
"""
HANGING = """#!/bin/sh
[ $CNI_COMMAND = "$(cat $0.verb)" ] || exit 0
sleep 600 &
echo $! >$0.pid
wait
"""


async def until(true):
    """Files show what other processes do."""
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110 - nobody tells when a file has changed
            await asyncio.sleep(0.02)


@pytest.fixture
def gated(node):
    """A plugin that waits for a gate; the file with its calls so far, and the gate."""
    program = node.plugin("gated", GATED)
    node.network("gated")
    node.cache = node.cache.with_name("cache")  # where a runtime's is, below the directory of its state
    reported, gate = program.with_name("gated.calls"), program.with_name("gated.open")
    return lambda: reported.read_text().splitlines() if reported.exists() else [], gate


def collecting(node):
    """`podwire cni gc`, as somebody types it."""
    words = [sys.executable, "-m", "podwire.cli.main", "cni", "gc", "net", "--conf-dir", node.configs]
    words += ["--bin-dir", node.bin, "--state-dir", node.cache.parent]
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


async def ended(process):
    assert await asyncio.to_thread(process.wait, SECONDS) == 0, process.stdout.read()
    process.stdout.close()


async def test_a_manual_gc_waits_for_an_add_and_spares_its_pod(node, pod, gated):
    reported, gate = gated
    network = node.cni(plugin=SECONDS)
    attaching = asyncio.create_task(network.attach(pod))
    await until(lambda: reported() == ["begin ADD"])
    manual = collecting(node)
    gate_file = node.cache.parent / "locks/net.gate"
    await until(lambda: _is_held(gate_file))
    assert reported() == ["begin ADD"], "it waits"
    gate.touch()
    await attaching
    await ended(manual)
    assert reported() == ["begin ADD", "end ADD", "begin GC", "end GC"]
    sent = json.loads((node.bin / "gated.GC").read_text())
    assert sent[VALID_ATTACHMENTS] == [{"containerID": pod.id, "ifname": "eth0"}]
    await network.close()


def _is_held(path: Path) -> bool:
    """Whether some process has locked a file, or waits for that."""
    inode = f":{path.stat().st_ino} "
    return any(inode in line for line in Path("/proc/locks").read_text().splitlines())


async def test_add_waits_for_a_manual_gc_unless_it_was_killed(node, pod, gated):
    reported, gate = gated
    network = node.cni(plugin=SECONDS)
    manual = collecting(node)
    await until(lambda: reported() == ["begin GC"])
    attaching = asyncio.create_task(network.attach(pod))
    await asyncio.sleep(0.1)
    assert reported() == ["begin GC"], "it waits"
    manual.send_signal(signal.SIGKILL)
    manual.communicate()
    await until(lambda: reported() == ["begin GC", "begin ADD"])
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
    result = "hangs failed .*: killed, because it did not end within 3 s"
    match verb:
        case "STATUS":
            assert "killed, because it did not end" in await network.query_status()
            assert "killed, because it did not end" in network.not_ready_reason()
        case "GC":
            [failed] = await network.gc()
            assert "killed, because it did not end" in str(failed)
        case "DEL":
            await network.attach(pod)
            with pytest.raises(DeadlineExceeded, match=result):
                await network.detach(pod)
            assert network.pending == {pod.id}
    child = int(program.with_name("hangs.pid").read_text())
    await until(lambda: not _lives(child))
    await network.close()


_ADDED = """[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}';"""


LEAVING = """#!/bin/sh
cat >/dev/null
SESSION sleep 600 >/dev/null 2>&1 &
echo $! >>$0.pids
"""
"""Answers nothing with exit code 0, and leaves a child."""


@pytest.mark.parametrize("session", ["", "setsid"])
async def test_children_of_a_failed_add_do_not_pile_up(node, pod, session):
    program = node.plugin("leaves", LEAVING.replace("SESSION", session))
    node.network("leaves")
    network = node.cni()
    for _ in range(3):
        with pytest.raises(FailedPrecondition, match="no address"):
            await network.attach(pod)
    children = [int(line) for line in program.with_name("leaves.pids").read_text().split()]
    assert len(children) == 6, "one of each ADD and DEL"
    await until(lambda: not any(map(_lives, children[::2])))
    if not session:
        await until(lambda: not any(map(_lives, children)))
    for child in filter(_lives, children):  # those of DEL, which succeeded, in sessions of their own
        os.kill(child, signal.SIGKILL)
    await network.close()


ORPHANED = """#!/bin/sh
cat >/dev/null
echo $CNI_COMMAND $$ >>"$0.calls"
[ $CNI_COMMAND = ADD ] || exit 0
setsid sh -c 'echo child $$ >>"$0.calls"; while [ ! -e "$0.open" ]; do sleep 0.05; done; >"$0.lease"' "$0"
"""
CALLER = """
import asyncio, sys
from pathlib import Path
from podwire.runtime.cni import CniNetwork, Conflists, Plugins
from podwire.runtime.ports import Attachment
configs, programs, cache, netns = sys.argv[1:]
network = CniNetwork(Conflists(Path(configs)), Plugins([Path(programs)], state=Path(cache)), Path(cache))
asyncio.run(network.attach(Attachment(id="c0ffee", netns=netns, name="a", namespace="default", uid="a")))
"""


def attaching(node, netns="/proc/self/ns/net"):
    """Another process that attaches a pod."""
    words = [sys.executable, "-c", CALLER, node.configs, node.bin, node.cache, netns]
    return subprocess.Popen(list(map(str, words)))


async def test_an_add_does_not_outlive_the_del_of_the_next_runtime(node, pod):
    """The caller is killed while ADD waits; what it started must not take anything when DEL has released all."""
    program = node.plugin("orphaned", ORPHANED)
    calls, gate, lease = (program.with_name(f"orphaned.{name}") for name in ("calls", "open", "lease"))
    node.network("orphaned")
    node.cache.mkdir()
    caller = attaching(node)
    await until(lambda: calls.exists() and "child" in calls.read_text())
    pids = [int(line.split()[1]) for line in calls.read_text().splitlines()]
    assert len(pids) == 2
    assert all(map(_lives, pids))
    other = node.cni(state=node.cache)
    assert all(map(_lives, pids)), "their caller lives: it is not our call"
    caller.kill()
    caller.wait()
    network = node.cni(state=node.cache)
    assert not any(map(_lives, pids))
    await network.detach(pod)
    gate.touch()
    await asyncio.sleep(0.2)
    assert not lease.exists()
    assert await network.attached() == set()
    await other.close()
    await network.close()


async def test_the_ipam_of_a_plugin_does_not_outlive_the_caller_either(node, tmp_path):
    """Ours, as a program, with an IPAM of somebody else, which gets an environment of its own and leaves a child."""
    install(str(node.bin), force=True, socket=str(tmp_path / "nobody.sock"))
    ipam = node.plugin("ipam", HANGING)
    ipam.with_name("ipam.verb").write_text("ADD")
    node.network({"type": "bridge", "bridge": "none0", "dataDir": str(tmp_path / "records"), "ipam": {"type": "ipam"}})
    node.cache.mkdir()
    namespaces = KernelNamespaces(tmp_path / "netns")
    caller = attaching(node, namespaces.create("a").path)
    try:
        await until(lambda: ipam.with_name("ipam.pid").exists() and ipam.with_name("ipam.pid").read_text())
        child = int(ipam.with_name("ipam.pid").read_text())
        assert VARIABLE in marked_environment(child, VARIABLE)
        caller.kill()
        caller.wait()
        network = node.cni(state=node.cache)
        await until(lambda: not _lives(child))
        await network.close()
    finally:
        namespaces.remove("a")


DAEMON = """#!/bin/sh
cat >/dev/null
[ $CNI_COMMAND = ADD ] || exit 0
setsid sh -c 'echo $$ >$0.pid; exec sleep 600' $0 >/dev/null 2>&1 &
while [ ! -s $0.pid ]; do sleep 0.01; done
"""


async def test_a_daemon_that_a_successful_add_left_is_spared(node, pod):
    """Such a plugin starts it on purpose, in a session of its own: it is spared also by the next runtime."""
    program = node.plugin("daemon", f"{DAEMON}{_ADDED}\n")
    node.network("daemon")
    node.cache.mkdir()
    assert await asyncio.to_thread(attaching(node).wait) == 0
    pid = int(program.with_name("daemon.pid").read_text())
    network = node.cni(state=node.cache)
    assert _lives(pid)
    os.kill(pid, signal.SIGKILL)
    await network.close()


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
        return [call for call in node.calls() if call["verb"] == "GC"]

    async with Reconciler(network, nothing).running():
        await until(lambda: len(collections()) == 1)
        ahead[0] += HOUR / 2
        await asyncio.sleep(0.2)
        assert len(collections()) == 1
        for many in (2, 3):
            ahead[0] += HOUR
            await until(lambda many=many: len(collections()) == many)
    await network.close()

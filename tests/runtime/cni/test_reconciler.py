"""Background work: late detachment of pods, garbage collection, STATUS."""

import asyncio
import contextlib
import json
import os
import signal
import sys

import pytest

from podwire.protocols.grpc_status import RpcError, Unknown
from podwire.runtime.cni import Reconciler
from podwire.runtime.cni.limits import CniLimits
from podwire.runtime.cni.reconciler import Attempts, after_failure, plan_retries

NO = {"exit": 1, "stdout": json.dumps({"cniVersion": "1.1.0", "code": 50, "msg": "the pool is full"})}
SECONDS = 30


async def until(true):
    """Plugins are processes: what they did is seen in files."""
    async with asyncio.timeout(SECONDS):
        while not true():  # noqa: ASYNC110 - nobody tells when a file has changed
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def reconciled(node, on_detached=None, **limits):
    """A network with its reconciler, as a runtime has them."""
    network = node.cni(**{"plugin": 20.0} | limits)

    async def nothing(_ids):
        pass

    async with Reconciler(network, on_detached or nothing).running():
        yield network
    await network.close()


def verbs(node, verb):
    return [call for call in node.calls() if call["verb"] == verb]


async def test_a_failed_del_is_retried_until_it_succeeds(node, pod):
    node.network("one", cniVersion="1.0.0")
    done = asyncio.Event()

    async def on_detached(_ids):
        done.set()

    async with reconciled(node, on_detached) as network:
        await network.attach(pod)
        node.script({"one DEL": NO})
        with pytest.raises(Unknown, match="the pool is full"):
            await network.detach(pod)
        assert network.pending == {pod.id}
        await until(lambda: len(verbs(node, "DEL")) >= 2)
        node.script({})
        async with asyncio.timeout(SECONDS):
            await done.wait()
        assert network.pending == set()
        assert await network.attached() == set()


async def test_pending_del_is_retried_at_the_start_from_the_cache(node, pod):
    node.network({"type": "one", "subnet": "old"}, cniVersion="1.0.0")
    before = node.cni()
    await before.attach(pod)
    node.script({"one DEL": NO})
    with pytest.raises(Unknown):
        await before.detach(pod)
    await before.close()
    node.script({})
    (node.configs / "10-net.conflist").unlink()
    async with reconciled(node) as network:
        await until(lambda: not network.pending)
        assert await network.attached() == set()
    last = node.calls()[-1]
    assert (last["verb"], last["config"]["subnet"]) == ("DEL", "old")
    assert last["env"]["CNI_CONTAINERID"] == pod.id


async def test_a_failed_undo_is_retried_later(node, pod):
    node.network("one", "two", cniVersion="1.0.0")
    node.script({"two ADD": {"exit": 1}, "one DEL": NO})
    async with reconciled(node) as network:
        with pytest.raises(Unknown, match="then CNI plugin one failed DEL"):
            await network.attach(pod)
        node.script({})
        await until(lambda: not network.pending)
        assert await network.attached() == set()


@pytest.mark.parametrize("where", ["plugin", "configuration"])
async def test_a_change_of_plugins_or_configurations_retries_at_once(node, pod, where):
    node.network("one", cniVersion="1.0.0")
    async with reconciled(node, first_pause=3600.0, longest_del_pause=3600.0) as network:
        await network.attach(pod)
        program = (node.bin / "one").read_text()
        if where == "plugin":
            (node.bin / "one").unlink()
        else:
            node.script({"one DEL": NO})
        with pytest.raises(RpcError):
            await network.detach(pod)
        node.script({})
        if where == "plugin":
            node.plugin("one", program)
        else:
            node.network("one", "two", cniVersion="1.0.0")
        await until(lambda: not network.pending)


async def test_a_plugin_that_writes_into_its_directory_causes_no_status(node, pod):
    node.network("one")
    async with reconciled(node, first_pause=3600.0, config_debounce=0.01):
        await until(lambda: verbs(node, "GC"))
        (node.bin / "notes.txt").write_text("dear diary")
        await asyncio.sleep(0.3)
        asked = len(verbs(node, "STATUS"))
        (node.bin / "notes.txt").write_text("dear diary again")
        await asyncio.sleep(0.3)
    assert len(verbs(node, "STATUS")) == asked == 1


async def test_a_crash_before_leaving_is_recorded_keeps_the_attachment(node, pod, tmp_path):
    node.network("one", cniVersion="1.0.0")
    node.script({"one DEL": NO})
    program = tmp_path / "die.py"
    program.write_text(
        "import asyncio, sys, pathlib\n"
        "from podwire.runtime.cni import CniNetwork, Conflists, Plugins\n"
        "from podwire.runtime.ports import Attachment\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "async def main():\n"
        "    network = CniNetwork(Conflists(root / 'net.d'), Plugins([root / 'bin']), root / 'memory')\n"
        "    pod = Attachment(id='c0ffee', netns=sys.argv[2], name='n', namespace='s', uid='u')\n"
        "    await network.attach(pod)\n"
        "    await network.detach(pod)\n"
        "asyncio.run(main())\n"
    )
    for point, pending in (("cni.leaving", set()), ("none.at-all", {"c0ffee"})):
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), str(tmp_path), pod.netns, stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PODWIRE_FAILPOINTS": f"{point}=kill"} if not pending else dict(os.environ),
        )  # fmt: skip
        assert await process.wait() == (1 if pending else -signal.SIGKILL)
        network = node.cni()
        assert await network.attached() == {"c0ffee"}
        assert network.pending == pending
        node.script({})
        await network.detach(pod)
        await network.close()
        node.script({"one DEL": NO})


async def test_gc_at_the_start_lists_all_valid_attachments(node, pod):
    node.network("one", "two")
    before = node.cni()
    await before.attach(pod)
    await before.close()
    (node.cache / "broken@eth0.json").write_text("{")
    node.script({"one GC": {"exit": 1, "stderr": "no"}})
    async with reconciled(node):
        await until(lambda: len(verbs(node, "GC")) == 2)
    one, two = verbs(node, "GC")
    stay = [{"containerID": "broken", "ifname": "eth0"}, {"containerID": pod.id, "ifname": "eth0"}]
    assert one["config"]["cni.dev/valid-attachments"] == two["config"]["cni.dev/valid-attachments"] == stay
    assert not {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"} & set(one["env"])


@pytest.mark.parametrize("keys", [{"cniVersion": "1.0.0"}, {"disableGC": True}])
async def test_gc_is_not_called_where_it_is_unsupported_or_disabled(node, keys):
    node.network("one", **keys)
    async with reconciled(node) as network:
        assert await network.gc() == []
    assert verbs(node, "GC") == []
    assert len(verbs(node, "STATUS")) == ("disableGC" in keys)


async def test_gc_leaves_networks_without_our_pods_alone(node):
    node.network("one")
    node.network("two", file="20-other.conflist", name="other")
    async with reconciled(node) as network:
        await network.gc()
    assert {verb["plugin"] for verb in verbs(node, "GC")} == {"one"}


SLOW = """#!/bin/sh
cat >/dev/null
echo begin $CNI_COMMAND >>$0.calls
sleep 0.4
echo end $CNI_COMMAND >>$0.calls
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}'
"""


async def test_gc_excludes_add_and_del(node, pod):
    node.plugin("slow", SLOW)
    node.network("slow")
    network = node.cni(plugin=20.0)

    def reported():
        path = node.bin / "slow.calls"
        return path.read_text().splitlines() if path.exists() else []

    adding = asyncio.create_task(network.attach(pod))
    await until(lambda: reported() == ["begin ADD"])
    collecting = asyncio.create_task(network.gc())
    await until(lambda: "begin GC" in reported())
    await asyncio.gather(adding, collecting, network.detach(pod))
    await network.close()
    assert reported() == [f"{when} {verb}" for verb in ("ADD", "GC", "DEL") for when in ("begin", "end")]


async def test_a_status_error_is_the_not_ready_reason_until_it_recovers(node):
    node.network("one")
    node.script({"one STATUS": NO})
    async with reconciled(node) as network:
        await until(lambda: "the pool is full" in network.not_ready_reason())
        assert network.not_ready_reason() == "network net: CNI plugin one failed STATUS: code 50: the pool is full"
        node.script({})
        await until(lambda: network.not_ready_reason() == "")


async def test_gc_is_called_when_status_begins_to_fail(node, pod):
    node.network("one")
    async with reconciled(node, gc_pause=0.5) as network:
        await until(lambda: len(verbs(node, "GC")) == 1)
        node.script({"one ADD": NO, "one STATUS": NO})
        with pytest.raises(Unknown):
            await network.attach(pod)
        await until(lambda: len(verbs(node, "GC")) == 2)
        failed = len(verbs(node, "STATUS"))
        await until(lambda: len(verbs(node, "STATUS")) > failed)
        assert len(verbs(node, "GC")) == 2, "not once more while it fails"


async def test_gc_because_of_status_waits_for_the_pause_after_the_last_one(node, pod):
    node.network("one")
    async with reconciled(node) as network:
        await until(lambda: len(verbs(node, "GC")) == 1)
        node.script({"one ADD": NO, "one STATUS": NO})
        with pytest.raises(Unknown):
            await network.attach(pod)
        await until(lambda: "the pool is full" in network.not_ready_reason())
    assert len(verbs(node, "GC")) == 1


async def test_status_is_called_after_events_only(node, pod):
    node.network("one")
    async with reconciled(node) as network:
        for _ in range(20):
            assert network.not_ready_reason() == ""
        await network.attach(pod)
        await network.detach(pod)
        assert len(verbs(node, "STATUS")) == 1
        node.script({"one ADD": NO, "one STATUS": NO})
        with pytest.raises(Unknown):
            await network.attach(pod)
        await until(lambda: "the pool is full" in network.not_ready_reason())


@pytest.mark.parametrize(("failed", "seconds"), [(1, 1), (2, 2), (5, 16), (10, 300), (10**6, 300)])
def test_pauses_double_up_to_the_limit(failed, seconds):
    limits = CniLimits()
    assert after_failure(Attempts(failed - 1, 0.0), 0.0, limits, limits.longest_del_pause) == Attempts(failed, seconds)


def test_retries_keep_their_plan_and_successes_leave_it():
    before = {"old": Attempts(3, 40.0), "done": Attempts(1, 2.0)}
    plan = plan_retries(["old", "new"], before, 10.0, CniLimits())
    assert plan == {"old": Attempts(3, 40.0), "new": Attempts(1, 11.0)}
    assert after_failure(Attempts(3, 40.0), 50.0, CniLimits(), 300.0) == Attempts(4, 58.0)

"""How plugins are called, in which order, and what is remembered of it."""

import asyncio
import dataclasses
import json
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from podwire.protocols.cni.caller import VARIABLE, Caller
from podwire.protocols.grpc_status import DeadlineExceeded, FailedPrecondition, InvalidArgument, Unavailable, Unknown

REFUSAL = json.dumps({"cniVersion": "1.1.0", "code": 7, "msg": "no such range", "details": "10.9.0.0/16"})


TRUE = Path("/bin/true").read_bytes()


@pytest.fixture
async def network(node):
    made = node.cni(plugin=20.0)
    yield made
    await made.close()


async def test_attach_returns_the_addresses_ipv4_first(node, network, pod):
    node.network("one", "two")
    assert await network.attach(pod) == ("10.1.0.5", "fd00::5")
    assert await network.attached() == {"c0ffee"}


async def test_plugins_run_in_order_with_the_previous_result(node, network, pod):
    node.network({"type": "one", "own": {"key": [1]}}, "two", "three")
    await network.attach(pod)
    first, second, third = (call["config"] for call in node.calls())
    assert node.called() == ["one ADD", "two ADD", "three ADD"]
    assert first == {"type": "one", "own": {"key": [1]}, "name": "net", "cniVersion": "1.1.0"}
    assert "by one" in second["prevResult"]
    assert {"by one", "by two"} <= set(third["prevResult"]), "what only plugins understand is passed on"


async def test_the_environment_is_made_from_scratch(node, network, pod, monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    node.network("one")
    await network.attach(pod)
    [call] = node.calls()
    env = {key: value for key, value in call["env"].items() if key != "LC_CTYPE"}  # Python's own
    caller = Caller.parse(env.pop(VARIABLE))
    assert (caller.pid, caller.call) == (os.getpid(), 1)
    assert env == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": pod.netns,
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;"
        "K8S_POD_INFRA_CONTAINER_ID=c0ffee;K8S_POD_UID=u-1",
        "CNI_PATH": str(node.bin),
        "PATH": os.environ["PATH"],
    }


async def test_plugins_get_only_the_capabilities_that_they_declare(node, network, pod):
    declared = {"portMappings": True, "bandwidth": True, "aliases": True}
    node.network(
        "one", {"type": "two", "capabilities": declared}, {"type": "three", "capabilities": {"bandwidth": False}}
    )
    await network.attach(pod)
    one, two, three = (call["config"] for call in node.calls())
    assert "runtimeConfig" not in one | three
    assert "capabilities" not in two
    assert two["runtimeConfig"] == {
        "portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": "10.0.0.1"},
        ],
        "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 2**32 - 1},
    }


@pytest.mark.parametrize("rate", ["1", "2P", "fast", ""])
async def test_an_invalid_bandwidth_is_refused_before_any_plugin_runs(node, network, pod, rate):
    node.network("one")
    with pytest.raises(InvalidArgument, match="ingress-bandwidth"):
        await network.attach(dataclasses.replace(pod, annotations={"kubernetes.io/ingress-bandwidth": rate}))
    assert node.calls() == []


async def test_del_runs_in_reverse_order_with_the_last_result(node, network, pod):
    node.network("one", "two", "three")
    await network.attach(pod)
    await network.detach(pod)
    assert node.called()[3:] == ["three DEL", "two DEL", "one DEL"]
    assert all({"by one", "by two", "by three"} <= set(call["config"]["prevResult"]) for call in node.calls()[3:])
    assert await network.attached() == set()


async def test_before_0_4_0_del_has_no_prev_result(node, network, pod):
    node.network("one", cniVersion="0.3.1")
    await network.attach(pod)
    await network.detach(pod)
    assert "prevResult" not in node.calls()[1]["config"]


async def test_detach_is_idempotent(node, network, pod):
    node.network("one")
    await network.detach(pod)
    await network.attach(pod)
    await network.detach(pod)
    await network.detach(pod)
    assert node.called() == ["one ADD", "one DEL"]


async def test_a_failed_add_is_undone_from_the_failing_plugin_backwards(node, network, pod):
    node.network("one", "two", "three")
    node.script({"two ADD": {"exit": 1, "stdout": REFUSAL}})
    with pytest.raises(Unknown, match=r"CNI plugin two failed ADD: code 7: no such range \(10\.9\.0\.0/16\)"):
        await network.attach(pod)
    assert node.called() == ["one ADD", "two ADD", "two DEL", "one DEL"]
    assert "prevResult" not in node.calls()[-1]["config"]
    assert await network.attached() == set()


async def test_a_failed_undo_is_kept_reported_and_retried(node, network, pod):
    node.network("one", "two")
    node.script({"two ADD": {"exit": 1, "stdout": REFUSAL}, "one DEL": {"exit": 3, "stderr": "bridge on fire"}})
    with pytest.raises(Unknown, match=r"two failed ADD.*; then CNI plugin one failed DEL: .*bridge on fire"):
        await network.attach(pod)
    assert await network.attached() == {"c0ffee"}
    node.script({})
    again = node.cni()
    assert await again.attached() == {"c0ffee"}
    await again.detach(pod)
    assert node.called()[-2:] == ["two DEL", "one DEL"]
    assert await again.attached() == set()
    await again.close()


async def test_a_failing_del_does_not_stop_the_del_of_other_plugins(node, network, pod):
    node.network("one", "two", "three")
    await network.attach(pod)
    node.script({"three DEL": {"exit": 1, "stdout": REFUSAL}, "one DEL": {"exit": 1}})
    with pytest.raises(Unknown, match=r"three failed DEL: code 7.*; then CNI plugin one failed DEL"):
        await network.detach(pod)
    assert node.called()[3:] == ["three DEL", "two DEL", "one DEL"]
    assert await network.attached() == {"c0ffee"}


async def test_a_container_that_a_plugin_does_not_know_is_detached(node, network, pod):
    node.network("one")
    await network.attach(pod)
    node.script({"one DEL": {"exit": 1, "stdout": json.dumps({"code": 3, "msg": "never heard of it"})}})
    await network.detach(pod)
    assert await network.attached() == set()


async def test_after_a_restart_del_uses_the_configuration_of_add(node, network, pod):
    node.network({"type": "one", "subnet": "old"}, "two")
    await network.attach(pod)
    for path in node.configs.iterdir():
        path.unlink()
    restarted = node.cni()
    await restarted.detach(dataclasses.replace(pod, netns=""))
    await restarted.close()
    last = node.calls()[-1]
    assert node.called()[2:] == ["two DEL", "one DEL"]
    assert last["config"]["subnet"] == "old"
    assert last["env"]["CNI_NETNS"] == ""
    assert last["env"]["CNI_ARGS"] == node.calls()[0]["env"]["CNI_ARGS"]


async def test_del_does_not_enter_another_namespace_at_the_same_path(node, network, pod, tmp_path):
    path = tmp_path / "netns"
    path.symlink_to(pod.netns)
    node.network("one")
    await network.attach(dataclasses.replace(pod, netns=str(path)))
    path.unlink()
    path.symlink_to("/proc/self/ns/ipc")
    await network.detach(dataclasses.replace(pod, netns=str(path)))
    assert node.calls()[-1]["env"]["CNI_NETNS"] == ""


async def test_add_is_preceded_by_del_of_leftovers(node, network, pod):
    node.network("one")
    await network.attach(pod)
    await network.attach(pod)
    assert node.called() == ["one ADD", "one DEL", "one ADD"]


@pytest.mark.parametrize("damage", [b"", b'{"id": "c0f', b"\xff\xfe"])
async def test_a_damaged_cache_file_does_not_prevent_del(node, network, pod, damage):
    node.network("one")
    await network.attach(pod)
    [file] = node.cache.iterdir()
    file.write_bytes(damage)
    assert await network.attached() == {"c0ffee"}
    await network.detach(pod)
    assert node.called() == ["one ADD", "one DEL"]
    assert list(node.cache.iterdir()) == []


LOSSES = {
    "removed": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "damaged": lambda file: file.write_bytes(b"garbage"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_cache_file_of_an_attached_pod_prevents_neither_del_nor_its_sparing_by_gc(
    node, network, pod, loss
):
    node.network("one")
    await network.attach(pod)
    LOSSES[loss](node.cache / "c0ffee@eth0.json")
    await network.gc()
    assert node.calls()[-1]["config"]["cni.dev/valid-attachments"] == [{"containerID": "c0ffee", "ifname": "eth0"}]
    await network.detach(pod)
    await network.gc()
    assert node.called() == ["one ADD", "one GC", "one DEL", "one GC"]
    assert node.calls()[-1]["config"]["cni.dev/valid-attachments"] == []


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_restart_caches_a_lost_attachment_anew(node, network, pod, loss):
    node.network("one")
    await network.attach(pod)
    await network.close()
    LOSSES[loss](node.cache / "c0ffee@eth0.json")
    restarted = node.cni()
    assert await restarted.adopt([pod]) == ["c0ffee"]
    assert await restarted.adopt([pod]) == []
    await restarted.gc()
    assert node.calls()[-1]["config"]["cni.dev/valid-attachments"] == [{"containerID": "c0ffee", "ifname": "eth0"}]
    await restarted.detach(pod)
    await restarted.detach(pod)
    assert node.called() == ["one ADD", "one GC", "one DEL"]
    assert list(node.cache.iterdir()) == []
    await restarted.close()


async def test_a_restart_without_a_network_spares_a_lost_attachment_and_releases_it_later(node, network, pod):
    node.network("one")
    await network.attach(pod)
    await network.close()
    for file in (*node.cache.iterdir(), *node.configs.iterdir()):
        file.unlink()
    restarted = node.cni()
    assert await restarted.adopt([pod]) == ["c0ffee"]
    with pytest.raises(Unavailable):
        await restarted.detach(pod)
    node.network("one")
    await restarted.gc()
    assert node.calls()[-1]["config"]["cni.dev/valid-attachments"] == [{"containerID": "c0ffee", "ifname": "eth0"}]
    await restarted.detach(pod)
    assert node.called() == ["one ADD", "one GC", "one DEL"]
    await restarted.close()


async def test_the_cache_is_readable_by_root_only(node, network, pod):
    node.network("one")
    await network.attach(pod)
    [file] = node.cache.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(node.cache.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        pytest.param({"stdout": ""}, "no address", id="nothing"),
        pytest.param({"stdout": "null"}, "no address", id="null"),
        pytest.param({"stdout": "{}"}, "no address", id="an empty result"),
        pytest.param({"stdout": "[]"}, "not a JSON object", id="a list"),
        pytest.param({"stdout": "Segfault!"}, "invalid JSON: Segfault!", id="garbage"),
        pytest.param(
            {"stdout": "Segfault!", "exit": 2}, "exit code 2 .*invalid JSON: Segfault!", id="garbage and a bad end"
        ),
        pytest.param({"stdout": "", "exit": 9}, "exit code 9 with: no output", id="no output"),
        pytest.param({"stdout": "", "stderr": "oh no", "exit": 1}, "with: oh no", id="only an error text"),
        pytest.param({"stdout": "", "signal": 9}, "killed by signal 9", id="a signal"),
        pytest.param({"stdout": REFUSAL}, "code 7: no such range", id="an error with exit code 0"),
        pytest.param({"stdout": '{"ips": [{"address": "10.1.0.300/24"}]}'}, "invalid result: .*300", id="no address"),
        pytest.param(
            {"stdout": '{"ips": [{"address": "10.1.0.3/24", "interface": 4}]}'}, "no interface 4", id="no link"
        ),
        pytest.param({"stdout": '{"ips": 7}'}, "list", id="wrong types"),
        pytest.param({"stdout": '{"cniVersion": "9.9.9"}'}, "code 1: .*9.9.9 is not supported", id="no such version"),
        pytest.param({"stdout": '{"cniVersion": "new"}'}, "code 6: .*'new' is not a version", id="not a version"),
        pytest.param({"stdout": "[" * 100_000}, "invalid JSON", id="depth"),
        pytest.param({"stdout": "x" * (5 << 20)}, "more than", id="five megabytes"),
    ],
)
async def test_invalid_output_is_an_error_that_names_plugin_and_verb(node, network, pod, answer, reported):
    node.network("one")
    node.script({"one ADD": answer})
    with pytest.raises((Unknown, FailedPrecondition), match=f"(?s)CNI plugin one failed ADD: .*{reported}"):
        await network.attach(pod)
    assert node.called() == ["one ADD", "one DEL"]


async def test_code_11_is_unavailable(node, network, pod):
    node.network("one")
    node.script({"one ADD": {"exit": 1, "stdout": json.dumps({"code": 11, "msg": "busy"})}})
    with pytest.raises(Unavailable, match="code 11: busy"):
        await network.attach(pod)


async def test_a_result_without_a_version_has_the_requested_version(node, network, pod):
    node.network("one", "two", cniVersion="0.4.0")
    node.script({"one ADD": {"stdout": '{"ips": [{"version": "4", "address": "10.1.0.7/24"}]}'}})
    assert await network.attach(pod) == ("10.1.0.7",)
    assert node.calls()[1]["config"]["prevResult"]["cniVersion"] == "0.4.0"


def _lives(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_hanging_plugin_is_killed_with_its_children_and_undone(node, pod):
    node.plugin("hangs", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nsleep 600 &\necho $! >$0.pid\nwait\n")
    node.network("hangs")
    network = node.cni(plugin=0.5)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="hangs failed ADD: killed"):
        await network.attach(pod)
    assert time.monotonic() - started < 10
    child = int((node.bin / "hangs.pid").read_text())
    for _ in range(500):
        if not _lives(child):
            break
        await asyncio.sleep(0.01)
    assert not _lives(child)
    assert await network.attached() == set()
    await network.close()


@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        pytest.param(lambda path: path.unlink(), "plugin one does not exist in", id="missing"),
        pytest.param(lambda path: path.chmod(0o644), "not executable", id="not executable"),
        pytest.param(lambda path: path.chmod(0o777), "others than root can write", id="written by anybody"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "not a regular file", id="a directory"),
        pytest.param(
            lambda path: path.parent.chmod(0o777), "others than root can write", id="in a directory of anybody"
        ),
        pytest.param(lambda path: path.write_bytes(b"\x7fELF junk"), "Exec format error", id="no program"),
    ],
)
async def test_a_missing_or_untrusted_program_is_not_run(node, network, pod, spoil, reported):
    node.network("one")
    spoil(node.bin / "one")
    with pytest.raises(FailedPrecondition, match=f"CNI plugin one failed ADD: .*{reported}"):
        await network.attach(pod)
    assert node.calls() == []
    assert await network.attached() == set(), "who did not run has nothing to give back"


async def test_a_missing_plugin_makes_the_network_not_ready(node, network):
    node.network("one", "absent")
    assert "plugin absent does not exist in" in network.not_ready_reason()
    node.network("one")
    assert network.not_ready_reason() == ""


async def test_a_network_name_that_is_too_long_makes_the_network_not_ready(node, network, pod):
    node.network("one", name="n" * 190)
    assert "longer than 170 characters" in network.not_ready_reason()
    with pytest.raises(Unavailable, match="longer than 170 characters"):
        await network.attach(pod)
    node.network("one", name="n" * 170)
    await network.attach(pod)
    await network.detach(pod)
    assert await network.attached() == set()


async def test_a_network_of_too_many_plugins_is_refused(node, network):
    node.network(*["one"] * 101)
    assert "plugins: 101 are more than 100" in network.not_ready_reason()


async def test_an_invalid_configuration_is_reported_although_pods_can_be_attached(node, network):
    node.network("one")
    assert network.invalid_configurations() == ""
    (node.configs / "99-bad.conflist").write_text('{"name": "x",')
    assert network.not_ready_reason() == ""
    assert "99-bad.conflist: not valid JSON (Expecting property name" in network.invalid_configurations()
    (node.configs / "99-bad.conflist").unlink()
    assert network.invalid_configurations() == ""


async def test_without_a_network_attach_fails_with_the_reason(node, network, pod):
    (node.configs / "10-bad.conflist").write_text("{")
    assert "no network is configured" in network.not_ready_reason()
    assert "10-bad.conflist" in network.not_ready_reason()
    with pytest.raises(Unavailable, match="no network is configured"):
        await network.attach(pod)


async def test_operations_on_one_pod_are_serialized_and_others_are_not(node, network, pod):
    node.network("one")
    node.script({"one ADD": {"sleep": 0.4}})
    other = dataclasses.replace(pod, id="other")
    started = time.monotonic()
    await asyncio.gather(network.attach(pod), network.attach(other), network.detach(pod))
    assert time.monotonic() - started < 0.4 * 2 + 1
    assert [call["verb"] for call in node.calls() if call["env"]["CNI_CONTAINERID"] == pod.id] == ["ADD", "DEL"]


async def test_a_cancelled_attach_runs_to_its_end_and_can_be_detached(node, network, pod):
    node.network("one", "two")
    node.script({"one ADD": {"sleep": 0.3}})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await network.attach(pod)
    await network.detach(pod)
    assert node.called() == ["one ADD", "two ADD", "two DEL", "one DEL"]
    assert await network.attached() == set()


async def test_a_busy_program_is_retried(node, network, pod):
    node.network("one")
    path = node.bin / "one"
    path.write_bytes(TRUE)
    writer = path.open("r+b")
    asyncio.get_running_loop().call_later(0.2, writer.close)
    with pytest.raises(FailedPrecondition, match="no address"):
        await network.attach(pod)
    assert writer.closed


async def test_a_missing_namespace_is_an_error_before_any_plugin_runs(node, network, pod, tmp_path):
    node.network("one")
    with pytest.raises(FailedPrecondition, match="namespace"):
        await network.attach(dataclasses.replace(pod, netns=str(tmp_path / "gone")))
    assert node.calls() == []
    assert await network.attached() == set()


@pytest.mark.parametrize("point", ["runtime.cni-remembered", "runtime.cni-added"])
async def test_a_crash_during_add_leaves_a_cached_attachment_for_del(node, pod, point, tmp_path):
    node.network("one", "two")
    program = tmp_path / "die.py"
    program.write_text(
        "import asyncio, sys, pathlib\n"
        "from podwire.runtime.cni import CniNetwork, Conflists, Plugins\n"
        "from podwire.runtime.ports import Attachment\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "async def main():\n"
        "    network = CniNetwork(Conflists(root / 'net.d'), Plugins([root / 'bin']), root / 'memory')\n"
        "    await network.attach(Attachment(id='c0ffee', netns=sys.argv[2], name='n', namespace='s', uid='u'))\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        str(tmp_path),
        pod.netns,
        env={**os.environ, "PODWIRE_FAILPOINTS": f"{point}=kill"},
    )
    assert await process.wait() == -signal.SIGKILL
    network = node.cni()
    assert await network.attached() == {"c0ffee"}
    asked = len(node.calls())
    await network.detach(pod)
    assert node.called()[asked:] == ["two DEL", "one DEL"]
    assert await network.attached() == set()
    await network.close()


async def test_a_network_that_is_removed_as_a_whole_is_detached_without_its_plugins(node, network, pod):
    node.network("one", "two")
    await network.attach(pod)
    (node.bin / "one").unlink()
    with pytest.raises(FailedPrecondition, match="plugin one does not exist"):
        await network.detach(pod)
    network._forgives_missing_plugins = True
    await network.detach(pod)
    assert await network.attached() == set()

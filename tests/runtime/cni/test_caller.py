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

from podwire.protocols.grpc_status import DeadlineExceeded, FailedPrecondition, InvalidArgument, Unavailable, Unknown

REFUSAL = json.dumps({"cniVersion": "1.1.0", "code": 7, "msg": "no such range", "details": "10.9.0.0/16"})


TRUE = Path("/bin/true").read_bytes()


@pytest.fixture
async def caller(node):
    made = node.caller(seconds=20.0)
    yield made
    await made.close()


async def test_a_pod_gets_the_addresses_that_the_chain_gave_it_ipv4_first(node, caller, pod):
    node.network("one", "two")
    assert await caller.attach(pod) == ("10.1.0.5", "fd00::5")
    assert await caller.attached() == {"c0ffee"}


async def test_plugins_are_asked_in_order_and_each_is_told_the_result_of_the_one_before(node, caller, pod):
    node.network({"type": "one", "own": {"key": [1]}}, "two", "three")
    await caller.attach(pod)
    first, second, third = (each["config"] for each in node.calls())
    assert node.told() == ["one ADD", "two ADD", "three ADD"]
    assert first == {"type": "one", "own": {"key": [1]}, "name": "net", "cniVersion": "1.1.0"}
    assert "by one" in second["prevResult"]
    assert {"by one", "by two"} <= set(third["prevResult"]), "what only plugins understand is passed on"


async def test_the_environment_is_made_from_scratch(node, caller, pod, monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    node.network("one")
    await caller.attach(pod)
    [call] = node.calls()
    env = {key: value for key, value in call["env"].items() if key != "LC_CTYPE"}  # Python's own
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


async def test_plugins_get_the_capabilities_that_they_declare_and_nothing_more(node, caller, pod):
    declared = {"portMappings": True, "bandwidth": True, "aliases": True}
    node.network(
        "one", {"type": "two", "capabilities": declared}, {"type": "three", "capabilities": {"bandwidth": False}}
    )
    await caller.attach(pod)
    one, two, three = (each["config"] for each in node.calls())
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
async def test_a_bandwidth_that_cannot_be_meant_is_refused_before_any_plugin_is_asked(node, caller, pod, rate):
    node.network("one")
    with pytest.raises(InvalidArgument, match="ingress-bandwidth"):
        await caller.attach(dataclasses.replace(pod, annotations={"kubernetes.io/ingress-bandwidth": rate}))
    assert node.calls() == []


async def test_detaching_asks_in_reverse_order_with_the_last_result(node, caller, pod):
    node.network("one", "two", "three")
    await caller.attach(pod)
    await caller.detach(pod)
    assert node.told()[3:] == ["three DEL", "two DEL", "one DEL"]
    assert all({"by one", "by two", "by three"} <= set(each["config"]["prevResult"]) for each in node.calls()[3:])
    assert await caller.attached() == set()


async def test_before_0_4_0_a_result_is_not_told_on_detaching(node, caller, pod):
    node.network("one", cniVersion="0.3.1")
    await caller.attach(pod)
    await caller.detach(pod)
    assert "prevResult" not in node.calls()[1]["config"]


async def test_detaching_what_was_never_attached_and_detaching_twice_ask_nobody(node, caller, pod):
    node.network("one")
    await caller.detach(pod)
    await caller.attach(pod)
    await caller.detach(pod)
    await caller.detach(pod)
    assert node.told() == ["one ADD", "one DEL"]


async def test_what_a_failed_attempt_took_is_given_back_the_failing_plugin_first(node, caller, pod):
    node.network("one", "two", "three")
    node.script({"two ADD": {"exit": 1, "stdout": REFUSAL}})
    with pytest.raises(Unknown, match=r"CNI plugin two failed ADD: code 7: no such range \(10\.9\.0\.0/16\)"):
        await caller.attach(pod)
    assert node.told() == ["one ADD", "two ADD", "two DEL", "one DEL"]
    assert "prevResult" not in node.calls()[-1]["config"]
    assert await caller.attached() == set()


async def test_what_cannot_be_given_back_is_remembered_told_and_tried_again(node, caller, pod):
    node.network("one", "two")
    node.script({"two ADD": {"exit": 1, "stdout": REFUSAL}, "one DEL": {"exit": 3, "stderr": "bridge on fire"}})
    with pytest.raises(Unknown, match=r"two failed ADD.*; then CNI plugin one failed DEL: .*bridge on fire"):
        await caller.attach(pod)
    assert await caller.attached() == {"c0ffee"}
    node.script({})
    again = node.caller()
    assert await again.attached() == {"c0ffee"}
    await again.detach(pod)
    assert node.told()[-2:] == ["two DEL", "one DEL"]
    assert await again.attached() == set()
    await again.close()


async def test_a_plugin_that_fails_to_delete_does_not_keep_the_others_from_giving_back(node, caller, pod):
    node.network("one", "two", "three")
    await caller.attach(pod)
    node.script({"three DEL": {"exit": 1, "stdout": REFUSAL}, "one DEL": {"exit": 1}})
    with pytest.raises(Unknown, match=r"three failed DEL: code 7.*; then CNI plugin one failed DEL"):
        await caller.detach(pod)
    assert node.told()[3:] == ["three DEL", "two DEL", "one DEL"]
    assert await caller.attached() == {"c0ffee"}


async def test_a_container_that_a_plugin_does_not_know_is_detached(node, caller, pod):
    node.network("one")
    await caller.attach(pod)
    node.script({"one DEL": {"exit": 1, "stdout": json.dumps({"code": 3, "msg": "never heard of it"})}})
    await caller.detach(pod)
    assert await caller.attached() == set()


async def test_after_a_restart_pods_are_detached_with_the_configuration_of_their_time(node, caller, pod):
    node.network({"type": "one", "subnet": "old"}, "two")
    await caller.attach(pod)
    for each in node.configs.iterdir():
        each.unlink()
    restarted = node.caller()
    await restarted.detach(dataclasses.replace(pod, netns=""))
    await restarted.close()
    last = node.calls()[-1]
    assert node.told()[2:] == ["two DEL", "one DEL"]
    assert last["config"]["subnet"] == "old"
    assert last["env"]["CNI_NETNS"] == ""
    assert last["env"]["CNI_ARGS"] == node.calls()[0]["env"]["CNI_ARGS"]


async def test_no_plugin_is_sent_into_a_namespace_that_took_the_path_of_another(node, caller, pod, tmp_path):
    path = tmp_path / "netns"
    path.symlink_to(pod.netns)
    node.network("one")
    await caller.attach(dataclasses.replace(pod, netns=str(path)))
    path.unlink()
    path.symlink_to("/proc/self/ns/ipc")
    await caller.detach(dataclasses.replace(pod, netns=str(path)))
    assert node.calls()[-1]["env"]["CNI_NETNS"] == ""


async def test_what_an_attempt_before_a_crash_left_is_deleted_before_anything_is_added(node, caller, pod):
    node.network("one")
    await caller.attach(pod)
    await caller.attach(pod)
    assert node.told() == ["one ADD", "one DEL", "one ADD"]


@pytest.mark.parametrize("damage", [b"", b'{"id": "c0f', b"\xff\xfe"])
async def test_a_memory_that_cannot_be_read_does_not_keep_a_pod_from_being_detached(node, caller, pod, damage):
    node.network("one")
    await caller.attach(pod)
    [file] = node.memory.iterdir()
    file.write_bytes(damage)
    assert await caller.attached() == {"c0ffee"}
    await caller.detach(pod)
    assert node.told() == ["one ADD", "one DEL"]
    assert list(node.memory.iterdir()) == []


async def test_the_memory_is_for_root_alone(node, caller, pod):
    node.network("one")
    await caller.attach(pod)
    [file] = node.memory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(node.memory.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param({"stdout": ""}, "no address", id="nothing"),
        pytest.param({"stdout": "null"}, "no address", id="null"),
        pytest.param({"stdout": "{}"}, "no address", id="an empty result"),
        pytest.param({"stdout": "[]"}, "no JSON object", id="a list"),
        pytest.param({"stdout": "Segfault!"}, "no JSON: Segfault!", id="garbage"),
        pytest.param(
            {"stdout": "Segfault!", "exit": 2}, "exit code 2 .*no JSON: Segfault!", id="garbage and a bad end"
        ),
        pytest.param({"stdout": "", "exit": 9}, "exit code 9 with: no word", id="no word"),
        pytest.param({"stdout": "", "stderr": "oh no", "exit": 1}, "with: oh no", id="only an error text"),
        pytest.param({"stdout": "", "signal": 9}, "killed by signal 9", id="a signal"),
        pytest.param({"stdout": REFUSAL}, "code 7: no such range", id="an error with exit code 0"),
        pytest.param({"stdout": '{"ips": [{"address": "10.1.0.300/24"}]}'}, "no result: .*300", id="no address"),
        pytest.param(
            {"stdout": '{"ips": [{"address": "10.1.0.3/24", "interface": 4}]}'}, "no interface 4", id="no link"
        ),
        pytest.param({"stdout": '{"ips": 7}'}, "no list", id="wrong types"),
        pytest.param({"stdout": "[" * 100_000}, "no JSON", id="depth"),
        pytest.param({"stdout": "x" * (5 << 20)}, "more than", id="five megabytes"),
    ],
)
async def test_what_cannot_be_understood_is_an_error_that_names_plugin_and_verb(node, caller, pod, answer, told):
    node.network("one")
    node.script({"one ADD": answer})
    with pytest.raises((Unknown, FailedPrecondition), match=f"(?s)CNI plugin one failed ADD: .*{told}"):
        await caller.attach(pod)
    assert node.told() == ["one ADD", "one DEL"]


async def test_try_again_later_is_told_as_such(node, caller, pod):
    node.network("one")
    node.script({"one ADD": {"exit": 1, "stdout": json.dumps({"code": 11, "msg": "busy"})}})
    with pytest.raises(Unavailable, match="code 11: busy"):
        await caller.attach(pod)


async def test_a_result_without_a_version_is_of_the_version_that_was_asked_for(node, caller, pod):
    node.network("one", "two", cniVersion="0.4.0")
    node.script({"one ADD": {"stdout": '{"ips": [{"version": "4", "address": "10.1.0.7/24"}]}'}})
    assert await caller.attach(pod) == ("10.1.0.7",)
    assert node.calls()[1]["config"]["prevResult"]["cniVersion"] == "0.4.0"


def _lives(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_plugin_that_hangs_is_killed_with_its_children_and_undone_with_time_of_its_own(node, pod):
    node.plugin("hangs", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exit 0\nsleep 600 &\necho $! >$0.pid\nwait\n")
    node.network("hangs")
    caller = node.caller(seconds=0.5)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="hangs failed ADD: killed"):
        await caller.attach(pod)
    assert time.monotonic() - started < 10
    child = int((node.bin / "hangs.pid").read_text())
    for _ in range(500):
        if not _lives(child):
            break
        await asyncio.sleep(0.01)
    assert not _lives(child)
    assert await caller.attached() == set()
    await caller.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        pytest.param(lambda path: path.unlink(), "there is no one in", id="missing"),
        pytest.param(lambda path: path.chmod(0o644), "not executable", id="not executable"),
        pytest.param(lambda path: path.chmod(0o777), "others than root can write", id="written by anybody"),
        pytest.param(lambda path: (path.unlink(), path.mkdir()), "no regular file", id="a directory"),
        pytest.param(
            lambda path: path.parent.chmod(0o777), "others than root can write", id="in a directory of anybody"
        ),
        pytest.param(lambda path: path.write_bytes(b"\x7fELF junk"), "Exec format error", id="no program"),
    ],
)
async def test_a_program_that_is_missing_or_not_to_be_trusted_is_not_run(node, caller, pod, spoil, told):
    node.network("one")
    spoil(node.bin / "one")
    with pytest.raises(FailedPrecondition, match=f"CNI plugin one failed ADD: .*{told}"):
        await caller.attach(pod)
    assert node.calls() == []
    assert await caller.attached() == set(), "who did not run has nothing to give back"


async def test_a_missing_program_is_trouble_and_a_network_without_one_is_not(node, caller):
    node.network("one", "absent")
    assert "there is no absent in" in caller.trouble()
    node.network("one")
    assert caller.trouble() == ""


async def test_without_a_network_pods_wait_and_the_reason_is_told(node, caller, pod):
    (node.configs / "10-bad.conflist").write_text("{")
    assert "no network is configured" in caller.trouble()
    assert "10-bad.conflist" in caller.trouble()
    with pytest.raises(Unavailable, match="no network is configured"):
        await caller.attach(pod)


async def test_operations_on_one_pod_take_turns_and_those_on_others_do_not_wait(node, caller, pod):
    node.network("one")
    node.script({"one ADD": {"sleep": 0.4}})
    other = dataclasses.replace(pod, id="other")
    started = time.monotonic()
    await asyncio.gather(caller.attach(pod), caller.attach(other), caller.detach(pod))
    assert time.monotonic() - started < 0.4 * 2 + 1
    assert [each["verb"] for each in node.calls() if each["env"]["CNI_CONTAINERID"] == pod.id] == ["ADD", "DEL"]


async def test_a_caller_that_gives_up_stops_no_plugin_and_what_it_made_can_be_given_back(node, caller, pod):
    node.network("one", "two")
    node.script({"one ADD": {"sleep": 0.3}})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await caller.attach(pod)
    await caller.detach(pod)
    assert node.told() == ["one ADD", "two ADD", "two DEL", "one DEL"]
    assert await caller.attached() == set()


async def test_a_program_that_is_being_written_is_waited_for(node, caller, pod):
    node.network("one")
    path = node.bin / "one"
    path.write_bytes(TRUE)
    writer = path.open("r+b")
    asyncio.get_running_loop().call_later(0.2, writer.close)
    with pytest.raises(FailedPrecondition, match="no address"):
        await caller.attach(pod)
    assert writer.closed


async def test_a_namespace_that_is_not_there_is_told_before_any_plugin_is_asked(node, caller, pod, tmp_path):
    node.network("one")
    with pytest.raises(FailedPrecondition, match="namespace"):
        await caller.attach(dataclasses.replace(pod, netns=str(tmp_path / "gone")))
    assert node.calls() == []
    assert await caller.attached() == set()


@pytest.mark.parametrize("point", ["runtime.cni-remembered", "runtime.cni-added"])
async def test_a_runtime_that_dies_while_it_attaches_gives_everything_back_when_it_is_up_again(
    node, pod, point, tmp_path
):
    node.network("one", "two")
    program = tmp_path / "die.py"
    program.write_text(
        "import asyncio, sys, pathlib\n"
        "from podwire.runtime.cni import Caller, Conflists, Plugins\n"
        "from podwire.runtime.ports import Attachment\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "async def main():\n"
        "    caller = Caller(Conflists(root / 'net.d'), Plugins([root / 'bin']), root / 'memory')\n"
        "    await caller.attach(Attachment(id='c0ffee', netns=sys.argv[2], name='n', namespace='s', uid='u'))\n"
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
    caller = node.caller()
    assert await caller.attached() == {"c0ffee"}
    asked = len(node.calls())
    await caller.detach(pod)
    assert node.told()[asked:] == ["two DEL", "one DEL"]
    assert await caller.attached() == set()
    await caller.close()

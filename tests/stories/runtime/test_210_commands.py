"""Commands inside containers: to their end, or as a conversation."""

import asyncio
import contextlib
import socket
import time
from pathlib import Path

import aiohttp
import pytest

from podwire.linux.proc.namespaces import visit
from podwire.protocols.streaming.client_side import ClientSide, Stderr, Stdout
from podwire.protocols.streaming.outcome import Exited
from podwire.protocols.streaming.terminal import Size
from tests.eventually import eventually_async

V5 = "v5.channel.k8s.io"


@pytest.fixture
async def container(cri):
    return await cri.start(await cri.run())


def running_in(id_, word):
    """Processes of a container whose command line has a word in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (path / "cmdline").read_bytes().decode() and id_ in (path / "cgroup").read_text():
                found.append(int(path.name))
    return found


async def test_exec_sync_returns_output_and_exit_code(cri, container):
    done = await cri.exec(container, "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == (b"out\n", b"err\n", 3)


async def test_a_command_has_the_containers_environment_and_root(cri, container):
    assert "HOSTNAME=" in await cri.said(container, "env")
    assert (await cri.said(container, "cat /etc/hostname")).startswith("pod-")


async def test_exec_sync_reports_a_missing_program(cri, container):
    done = await cri.exec(container, "/no/such", "program")
    assert done.exit_code != 0
    assert b"no/such" in done.stderr


async def test_a_command_is_killed_with_its_children_at_its_deadline(cri, container):
    begun = time.monotonic()
    error = await cri.refused(
        "ExecSync", container_id=container, cmd=["sh", "-c", "sleep 1234 & sleep 1234; true"], timeout=1
    )
    assert error.code == 4
    assert time.monotonic() - begun < 8
    assert not running_in(container, "1234")
    assert list((await cri.exec(container, "echo", "still here")).stdout) == list(b"still here\n")


async def test_a_command_that_was_killed_at_its_deadline_is_not_even_a_zombie(cri):
    """The first process of this container reaps nothing."""
    container = await cri.start(await cri.run(), "sleep", "100000")
    for _ in range(3):
        assert (await cri.refused("ExecSync", container_id=container, cmd=["sleep", "2345"], timeout=1)).code == 4
        assert await cri.said(container, "pidof sleep") == "1\n"


async def test_an_orphan_of_a_command_is_killed_at_the_commands_deadline(cri, container):
    command = ["sh", "-c", "(sleep 3456 &); sleep 3456; true"]
    assert (await cri.refused("ExecSync", container_id=container, cmd=command, timeout=1)).code == 4
    assert not running_in(container, "3456")


async def test_a_command_dies_with_its_caller(cri, container):
    call = asyncio.create_task(cri("ExecSync", container_id=container, cmd=["sleep", "4321"]))
    await eventually_async(lambda: running_in(container, "4321"))
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await eventually_async(lambda: not running_in(container, "4321"))


async def test_a_command_with_too_much_output_is_stopped(cri, container):
    error = await cri.refused("ExecSync", container_id=container, cmd=["cat", "/dev/zero"], timeout=30)
    assert error.code == 8
    await eventually_async(lambda: not running_in(container, "/dev/zero"))


async def test_background_processes_of_a_command_are_not_waited_for(cri, container):
    begun = time.monotonic()
    assert await cri.said(container, "sleep 20 & echo done") == "done\n"
    assert time.monotonic() - begun < 10


async def test_forty_slow_commands_keep_no_other_call_waiting(cri, container):
    slow = [asyncio.create_task(cri.exec(container, "sleep", "3")) for _ in range(40)]
    await asyncio.sleep(0.5)
    begun = time.monotonic()
    pod = await cri.run()
    assert time.monotonic() - begun < 2.5
    assert not all(item.done() for item in slow)
    assert {item.exit_code for item in await asyncio.gather(*slow)} == {0}
    await cri.remove(pod)


async def test_commands_need_a_running_container(cri, container):
    await cri("StopContainer", container_id=container, timeout=0)
    assert (await cri.refused("ExecSync", container_id=container, cmd=["true"])).code == 9
    assert (await cri.refused("ExecSync", container_id="nobody", cmd=["true"])).code == 5


async def test_nothing_of_a_command_is_left(cri, container, shared):
    await cri.exec(container, "true")
    assert list((shared.state / "runtime/containers" / container).glob("exec-*")) == []


class Talk:
    """A client's end of one conversation."""

    def __init__(self, websocket):
        self.websocket = websocket
        self.side = ClientSide(V5)
        self.stdout, self.stderr, self.outcome = b"", b"", None

    async def say(self, data):
        for message in self.side.stdin(data):
            await self.websocket.send_bytes(message)

    async def end_input(self):
        await self.websocket.send_bytes(self.side.stdin_ended())

    async def resize(self, width, height):
        await self.websocket.send_bytes(self.side.resize(Size(width, height)))

    async def hear(self, until=None):
        """Take what comes until the outcome, or until some output."""
        async with asyncio.timeout(20):
            async for message in self.websocket:
                match self.side.receive(message.data):
                    case Stdout(data):
                        self.stdout += data
                    case Stderr(data):
                        self.stderr += data
                    case None:
                        pass
                    case outcome:
                        self.outcome = outcome
                if until is not None and until in self.stdout:
                    return


@pytest.fixture
async def talk(cri, container, shared):
    """Opens conversations, from within the runtime's network."""

    def inside(address):
        with visit(f"/proc/{shared.space.pid}/ns/net"):
            return socket.socket(address[0], address[1], address[2])

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=inside)) as session:

        @contextlib.asynccontextmanager
        async def opened(*command, **streams):
            answer = await cri("Exec", container_id=container, cmd=command, **streams)
            async with session.ws_connect(answer.url, protocols=[V5]) as websocket:
                yield Talk(websocket)

        opened.session = session
        yield opened


async def test_exec_carries_input_to_its_end_and_both_outputs(talk):
    async with talk("sh", "-c", "cat; echo bye >&2; exit 5", stdin=True, stdout=True, stderr=True) as it:
        await it.say(b"hello ")
        await it.say(b"x" * 100_000)
        await it.end_input()
        await it.hear()
    assert it.stdout == b"hello " + b"x" * 100_000
    assert it.stderr == b"bye\n"
    assert it.outcome == Exited(5)


async def test_a_conversation_without_input(talk):
    async with talk("sh", "-c", "cat; echo end", stdout=True) as it:
        await it.hear()
    assert (it.stdout, it.outcome) == (b"end\n", Exited(0))


async def test_a_terminal_has_the_size_of_the_clients(talk):
    async with talk("sh", stdin=True, stdout=True, tty=True) as it:
        await it.resize(123, 45)
        await it.say(b"until [ \"$(stty size)\" = '45 123' ]; do sleep 0.05; done; echo si''zed\n")
        await it.hear(until=b"sized")
        await it.resize(80, 24)
        await it.say(b"until [ \"$(stty size)\" = '24 80' ]; do sleep 0.05; done; echo ag''ain; exit 4\n")
        await it.hear()
    assert b"again" in it.stdout
    assert it.outcome == Exited(4)


async def test_a_command_dies_when_its_client_goes(talk, container):
    async with talk("sh", "-c", "echo up; sleep 5678; true", stdin=True, stdout=True) as it:
        await it.hear(until=b"up\n")
        assert running_in(container, "5678")
    await eventually_async(lambda: not running_in(container, "5678"))


async def test_an_exec_url_is_valid_once_and_needs_an_upgrade(talk, cri, container):
    answer = await cri("Exec", container_id=container, cmd=["true"], stdout=True)
    async with talk.session.post(answer.url) as refused:
        assert refused.status == 400
        assert "over SPDY/3.1 or a WebSocket" in await refused.text()
    async with talk.session.get(answer.url) as gone:
        assert gone.status == 404


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"cmd": ["sh"], "tty": True, "stdout": True, "stderr": True}, 3, id="a terminal has no stderr"),
        pytest.param({"cmd": ["sh"]}, 3, id="no stream at all"),
        pytest.param({"stdout": True}, 3, id="no command"),
    ],
)
async def test_conversations_that_cannot_be_are_not_offered(cri, container, fields, code):
    assert (await cri.refused("Exec", container_id=container, **fields)).code == code


async def test_no_zombie_is_left_of_any_command(cri, container, shared, talk):
    await cri.exec(container, "true")
    async with talk("sleep", "77", stdout=True):
        pass

    def zombies():
        children = Path(f"/proc/{shared.pid}/task/{shared.pid}/children").read_text().split()
        return [
            child for child in children if "(" in (stat := _stat(child)) and stat.rpartition(")")[2].split()[0] == "Z"
        ]

    await eventually_async(lambda: not zombies() and not running_in(container, "77"))


def _stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""

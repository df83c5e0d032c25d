"""A plugin as a process: started by a runtime with descriptor 3 and three variables, or alone; stopped by signals."""

import asyncio
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager

import pytest

from podwire.nri import Plugin, main, pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.protocols.nri import methods
from podwire.protocols.nri.events import Event

PROGRAM = f"""#!{sys.executable}
import asyncio, os, sys
from podwire.nri import Plugin, main

class Child(Plugin):
    name = "child"

    async def configure(self, config, runtime):
        self.config = config

    async def run_pod_sandbox(self, pod):
        env = {{key: value for key, value in os.environ.items() if not key.startswith(("LC_", "__"))}}
        raise ValueError(f"config={{self.config}} env={{sorted(env)}} inheritable={{os.get_inheritable(3)}}")

    async def start_container(self, pod, container):
        print("begun", flush=True)
        await asyncio.sleep(0.2)

sys.exit(main(Child()))
"""


@asynccontextmanager
async def started(*argv, **how):
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe, **how)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "42-child"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


def launched(program, theirs):
    """As runtimes do it: the connection is descriptor 3, and there are three variables and no others."""
    env = {"NRI_PLUGIN_NAME": "child", "NRI_PLUGIN_IDX": "42", "NRI_PLUGIN_SOCKET": "3"}
    at_three = f'import os; os.dup2({theirs.fileno()}, 3); os.execve("{program}", ["{program}"], {env!r})'
    return started(sys.executable, "-c", at_three, pass_fds=(theirs.fileno(),))


async def test_a_runtime_starts_a_plugin_with_descriptor_3_and_three_variables(runtime, program):
    ours, theirs = socket.socketpair()
    with theirs:
        await runtime.over(ours)
        async with launched(program, theirs) as process:
            theirs.close()
            peer = await runtime.peer()
            outcome = peer.registered.result()
            assert (outcome.plugin_idx, outcome.plugin_name) == ("42", "child")
            assert await peer.welcome(config="given") == Event.RUN_POD_SANDBOX.bit | Event.START_CONTAINER.bit
            with pytest.raises(Exception, match="config=given") as failed:
                await peer.ask(methods.RUN_POD_SANDBOX)
            three = "['NRI_PLUGIN_IDX', 'NRI_PLUGIN_NAME', 'NRI_PLUGIN_SOCKET']"
            assert f"env={three} inheritable=False" in str(failed.value)
            await peer.connection.close("the runtime stops")
            _, errors = await process.communicate()
            assert process.returncode == 0, errors


async def test_a_launched_plugin_that_is_rejected_exits_with_the_reason(runtime, program):
    runtime.refusal = InvalidArgument("plugin_name: not here")
    ours, theirs = socket.socketpair()
    with theirs:
        await runtime.over(ours)
        async with launched(program, theirs) as process:
            theirs.close()
            _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1] == "child: 42-child is not registered: plugin_name: not here"
    assert "Traceback" not in errors.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
async def test_a_signal_ends_a_plugin_after_its_hook(runtime, program, number):
    await runtime.listen()
    async with started(program, "--socket", runtime.path, "--index", "07", "--name", "other") as process:
        peer = await runtime.peer()
        assert (peer.registered.result().plugin_idx, peer.registered.result().plugin_name) == ("07", "other")
        await peer.welcome()
        hook = asyncio.create_task(peer.ask(methods.START_CONTAINER))
        assert await process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert await hook == pb.StartContainerResponse()
        _, errors = await process.communicate()
        assert process.returncode == 0, errors
        assert "Traceback" not in errors.decode()


async def test_a_signal_ends_a_plugin_that_waits_for_its_runtime(tmp_path, program):
    async with started(program, "--socket", tmp_path / "nobody.sock") as process:
        assert b"cannot connect to the runtime, retrying" in await process.stderr.readline()
        process.terminate()
        await process.communicate()
        assert process.returncode == 0


async def test_a_configuration_in_a_file_is_handed_to_the_plugin(runtime, program, tmp_path):
    (tmp_path / "conf").write_text("from a file")
    await runtime.listen()
    async with started(program, "--socket", runtime.path, "--config", tmp_path / "conf"):
        peer = await runtime.peer()
        await peer.welcome()
        with pytest.raises(Exception, match="config=from a file"):
            await peer.ask(methods.RUN_POD_SANDBOX)


class Named(Plugin):
    """A plugin of this process."""

    name = "named"


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        pytest.param(["--index", "x"], {}, "plugin_idx: 'x' is not two digits", id="a bad index"),
        pytest.param(["--config", "/no/such/file"], {}, "/no/such/file", id="a missing configuration"),
        pytest.param(
            [], {"NRI_PLUGIN_SOCKET": "no"}, "NRI_PLUGIN_SOCKET: 'no' is not the number", id="a bad descriptor"
        ),
        pytest.param([], {"NRI_PLUGIN_SOCKET": "987654"}, "descriptor 987654 is not a socket", id="one that is closed"),
    ],
)
def test_user_errors_are_printed_in_one_line(capsys, monkeypatch, arguments, environ, words):
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    assert main(Named(), arguments) == 1
    output = capsys.readouterr().err
    assert output.startswith("named: ")
    assert words in output
    assert len(output.splitlines()) == 1


def test_a_file_instead_of_a_socket_is_reported_in_one_line(capsys, monkeypatch, tmp_path):
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setenv("NRI_PLUGIN_SOCKET", str(os.dup(file.fileno())))
        assert main(Named(), []) == 1
        os.close(int(os.environ["NRI_PLUGIN_SOCKET"]))
    assert "is not a socket" in capsys.readouterr().err

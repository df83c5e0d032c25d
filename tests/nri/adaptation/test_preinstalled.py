"""Pre-installed plugins: found, started with file 3 and three variables, kept, killed with the host."""

import json
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from podwire.nri.adaptation.preinstalled import find_plugins, read_configuration
from podwire.protocols.nri.names import PluginId
from tests.eventually import eventually_async

PROGRAM = f"""#!{sys.executable}
import asyncio, json, os, socket, sys
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import Services, MuxConnection, over_socket

async def configure(request):
    state = dict(os.environ), request.config, sorted(map(int, os.listdir("/proc/self/fd"))), os.getpgrp() == os.getpid()
    with open(request.config.strip(), "a") as file:
        file.write(json.dumps([os.getpid(), *state]) + "\\n")
    return pb.ConfigureResponse()

async def synchronize(request):
    return pb.SynchronizeResponse()

async def run(request):
    if request.pod.id == "kill":
        os._exit(3)
    if request.pod.id == "hang":
        os.kill(os.getpid(), 19)
    return pb.RunPodSandboxResponse()

async def stop(request):
    return pb.StopPodSandboxResponse()

async def main():
    handlers = {{"Configure": configure, "Synchronize": synchronize, "RunPodSandbox": run, "StopPodSandbox": stop}}
    services = Services(methods.PLUGIN, handlers)
    connection = MuxConnection(services, asks_on=mux.RUNTIME_SERVICE, answers_on=mux.PLUGIN_SERVICE)
    await over_socket(socket.socket(fileno=int(os.environ["NRI_PLUGIN_SOCKET"])), connection)
    name = os.environ["NRI_PLUGIN_NAME"], os.environ["NRI_PLUGIN_IDX"]
    request = pb.RegisterPluginRequest(plugin_name="whatever", plugin_idx="77")
    await connection.call(methods.REGISTER_PLUGIN, request, within=60)
    await connection.closed

asyncio.run(main())
"""

SLOW = {"registration_timeout": 60.0}


class Folders:
    def __init__(self, root):
        self.plugins, self.configs, self.notes = root / "plugins", root / "conf.d", root / "notes"
        self.plugins.mkdir()
        self.configs.mkdir()

    def install(self, name, text=PROGRAM, mode=0o755):
        path = self.plugins / name
        path.write_text(text)
        path.chmod(mode)
        (self.configs / f"{name}.conf").write_text(f"{self.notes}\n")

    def settings(self, **more):
        return {"plugin_path": self.plugins, "plugin_config_path": self.configs, "socket": None} | SLOW | more

    def lives(self):
        return [json.loads(line) for line in self.notes.read_text().splitlines()]


@pytest.fixture
def folders(stage):
    return Folders(stage.folder)


def lives(pid):
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_plugin_is_started_configured_and_killed_with_the_adaptation(stage, folders, pod):
    folders.install("10-first")
    async with stage.hosting(**folders.settings()) as host:
        assert [str(item) for item in host.active()] == ["10-first"]
        [[pid, environ, config, files, leads]] = folders.lives()
        assert environ.keys() - {"LC_CTYPE"} == {"NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX", "NRI_PLUGIN_SOCKET"}
        named = environ["NRI_PLUGIN_NAME"], environ["NRI_PLUGIN_IDX"], environ["NRI_PLUGIN_SOCKET"]
        assert (named, config, leads) == (("first", "10", "3"), f"{folders.notes}\n", True)
        assert 3 in files
        await host.run_pod_sandbox(pod())
        [report] = host.report()
        assert (report.pid, report.launched) == (pid, True)
        assert lives(pid)
    assert not lives(pid)


async def test_plugins_are_active_before_the_first_pod_despite_a_failing_one(stage, folders, pod, caplog):
    folders.install("20-good")
    folders.install("10-fails", f"#!{sys.executable}\nraise SystemExit(5)\n")
    folders.install("30-odd", "#!/nowhere/at/all\n")
    folders.install("stray")
    folders.install("40-plain", mode=0o644)
    async with stage.hosting(**folders.settings()) as host:
        assert [str(item) for item in host.active()] == ["20-good"]
        await host.run_pod_sandbox(pod())
    refused = [
        record.error for record in caplog.records if record.message == "ignored file among pre-installed plugins"
    ]
    assert [item.split(":")[0] for item in refused] == [f"{folders.plugins}/{name}" for name in ("40-plain", "stray")]
    assert 5 in [record.code for record in caplog.records if record.message == "pre-installed plugin has exited"]
    assert [record.plugin for record in caplog.records if record.message == "cannot start pre-installed plugin"] == [
        "30-odd"
    ]


async def test_a_plugin_that_dies_is_gone_unless_pods_require_it(stage, folders, pod):
    folders.install("10-optional")
    folders.install("20-needed")
    async with stage.hosting(**folders.settings(required_plugins=("needed",), grace=60.0)) as host:
        assert len(host.active()) == 2
        pids = {live[1]["NRI_PLUGIN_NAME"]: live[0] for live in folders.lives()}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        await eventually_async(lambda: not host.active())
        await host.run_pod_sandbox(pod())  # waits for the one that is started again
        assert [str(item) for item in host.active()] == ["20-needed"]
        assert [live[1]["NRI_PLUGIN_NAME"] for live in folders.lives()[2:]] == ["needed"]


async def test_a_plugin_that_hangs_is_killed_when_its_time_is_over(stage, folders, pod):
    folders.install("10-hanging")
    async with stage.hosting(**folders.settings(request_timeout=1.0)) as host:
        [[pid, *_]] = folders.lives()
        await host.run_pod_sandbox(pod("hang"))
        assert host.active() == ()
        await eventually_async(lambda: not lives(pid))


async def test_children_of_a_plugin_are_killed_with_it(stage, folders):
    child = stage.folder / "child"
    folders.install(
        "10-forking",
        PROGRAM.replace(
            "async def main():",
            textwrap.dedent(f"""
            import subprocess
            started = subprocess.Popen(["/bin/sleep", "1000"])
            open({str(child)!r}, "w").write(str(started.pid))
            async def main():"""),
        ),
    )
    async with stage.hosting(**folders.settings()):
        pid = int(child.read_text())
        assert lives(pid)
    await eventually_async(lambda: not lives(pid))


@pytest.mark.parametrize(
    ("name", "mode", "content", "words"),
    [
        pytest.param("plugin", 0o755, b"", "two digits first", id="no index"),
        pytest.param("1-a", 0o755, b"", "plugin_idx", id="one digit"),
        pytest.param("10-", 0o755, b"", "plugin_name", id="no name"),
        pytest.param("10-a b", 0o755, b"", "plugin_name", id="a bad name"),
        pytest.param("10-a", 0o644, b"", "is not executable", id="not executable"),
        pytest.param("10-a", 0o755, b"\0asm\1\0\0\0", "WebAssembly", id="WebAssembly"),
    ],
)
def test_an_invalid_plugin_file_is_named_with_the_reason(tmp_path, name, mode, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    path.chmod(mode)
    found, [problem] = find_plugins(tmp_path)
    assert found == []
    assert problem.startswith(f"{path}: ")
    assert words in problem


def test_a_directory_is_read_in_order_without_subdirectories(tmp_path):
    for name in ("20-b", "10-b", "10-a"):
        (tmp_path / name).write_text("#!/bin/true\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "30-folder").mkdir()
    (tmp_path / "40-lost").symlink_to("nowhere")
    found, problems = find_plugins(tmp_path)
    assert [str(item.id) for item in found] == ["10-a", "10-b", "20-b"]
    assert problems == [
        f"{tmp_path}/30-folder: is not a regular file",
        f"{tmp_path}/40-lost: No such file or directory",
    ]


def test_a_folder_that_is_not_there_has_no_plugins(tmp_path):
    assert find_plugins(tmp_path / "nothing") == ([], [])


@pytest.mark.parametrize(
    ("files", "config"),
    [
        pytest.param({"10-a.conf": "indexed", "a.conf": "named"}, "indexed", id="with its index first"),
        pytest.param({"a.conf": "named"}, "named", id="else by its name"),
        pytest.param({"b.conf": "other"}, "", id="else nothing"),
    ],
)
def test_a_plugins_configuration(tmp_path, files, config):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read_configuration(PluginId("10", "a"), tmp_path) == config
    assert read_configuration(PluginId("10", "a"), None) == ""

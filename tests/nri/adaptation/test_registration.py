"""Registration: accepted and refused plugins, at no cost for the others."""

import asyncio
import contextlib
import os
import random
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.protocols.grpc_status import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unimplemented,
)
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.ttrpc import mux
from podwire.transports import unix_sockets
from podwire.transports.mux_connection import MuxConnectionError
from tests.eventually import eventually_async

# The interpreter itself: another user may not read the environment that it belongs to.
PYTHON = os.path.realpath(sys.executable)


async def test_the_socket_is_its_owners_alone(stage):
    async with stage.hosting():
        assert stat.S_IMODE(stage.socket.stat().st_mode) == 0o600
        assert stat.S_IMODE(stage.socket.parent.stat().st_mode) == 0o700
    assert not stage.socket.exists()


async def test_a_socket_in_use_is_not_replaced(stage):
    async with stage.hosting():
        with pytest.raises(unix_sockets.CannotListen):
            async with type(stage)(stage.folder).hosting():
                pytest.fail("two hosts at one socket")


async def test_a_disabled_adaptation_accepts_no_plugin_and_works(stage, pod):
    async with stage.hosting(disable=True) as host:
        await host.run_pod_sandbox(pod())
        assert not stage.socket.exists()


async def test_a_host_without_a_socket_works(stage, pod):
    async with stage.hosting(socket=None) as host:
        await host.run_pod_sandbox(pod())
        assert host.active() == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
async def test_another_user_is_turned_away_even_if_the_socket_lets_it(stage, pod, caplog):
    program = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    async with stage.hosting() as host:
        plugin = await stage.join()
        for item in (stage.folder, stage.socket.parent, stage.socket):
            item.chmod(0o777)
        stranger = await asyncio.to_thread(
            subprocess.run,
            [PYTHON, "-I", "-S", "-c", program, str(stage.socket)],
            user=65534,
            cwd="/",
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert stranger.stdout == b"b''\n", stranger.stderr
        assert [
            record.uid for record in caplog.records if record.message == "rejected NRI connection of another user"
        ] == [65534]
        await host.run_pod_sandbox(pod())
        assert plugin.heard == ["RunPodSandbox p1"]


async def test_a_plugin_gets_the_runtimes_name_and_timeouts(stage):
    async with stage.hosting(request_timeout=3.5, registration_timeout=7.0):
        plugin = await stage.join()
        result = plugin.configured
        assert (result.runtime_name, result.runtime_version, result.config) == ("podwire", "v1", "")
        assert (result.request_timeout, result.registration_timeout) == (3500, 7000)
        assert result.NRI_version.startswith("v0.12.")


@pytest.mark.parametrize(
    ("index", "name", "field"),
    [
        pytest.param("1", "a", "plugin_idx", id="one digit"),
        pytest.param("100", "a", "plugin_idx", id="three digits"),
        pytest.param("", "a", "plugin_idx", id="no index"),
        pytest.param("1a", "a", "plugin_idx", id="a letter"),
        pytest.param("१२", "a", "plugin_idx", id="digits of another script"),
        pytest.param("10", "", "plugin_name", id="no name"),
        pytest.param("10", "a b", "plugin_name", id="a space"),
        pytest.param("10", "../a", "plugin_name", id="a path"),
    ],
)
async def test_bad_names_are_answered_with_the_field_and_closed(stage, index, name, field):
    async with stage.hosting() as host:
        plugin = stage.plugin(index, name)
        await plugin.connect()
        with pytest.raises(InvalidArgument, match=field):
            await plugin.register()
        await plugin.closed()
        assert host.active() == ()
        await stage.join()


async def fails_to_configure(request):
    raise Internal("no configuration of mine")


async def answers(events):
    return pb.ConfigureResponse(events=events)


@pytest.mark.parametrize(
    ("configure", "reason"),
    [
        pytest.param(fails_to_configure, "Configure: no configuration of mine", id="it refuses"),
        pytest.param(lambda _: answers(1 << 14), "Configure: events 0x4000 are not defined", id="an unknown bit"),
        pytest.param(lambda _: answers(-1), "Configure: events 0xffffc000 are not defined", id="all bits"),
    ],
)
async def test_a_plugin_that_configure_finds_wrong_is_closed_with_a_reason(stage, caplog, configure, reason):
    async with stage.hosting() as host:
        plugin = stage.plugin(hooks={"Configure": configure})
        await plugin.connect()
        await plugin.register()
        await plugin.closed()
        await eventually_async(
            lambda: any(record.message == "NRI plugin was not registered" for record in caplog.records)
        )
        [reported] = [record for record in caplog.records if record.message == "NRI plugin was not registered"]
        assert reported.error.startswith(reason)
        [report] = host.report()
        assert report.state == "gone"
        assert report.last_error.startswith(reason)


async def test_a_connection_without_registration_is_closed(stage, caplog):
    async with stage.hosting(registration_timeout=0.1):
        plugin = stage.plugin()
        await plugin.connect()
        await plugin.closed()
        await eventually_async(lambda: "NRI plugin was not registered" in caplog.messages)
        assert [record.error for record in caplog.records if record.message == "NRI plugin was not registered"] == [
            "no RegisterPlugin within 0.1 s"
        ]


async def test_a_slow_registration_delays_no_other(stage):
    held = asyncio.Event()

    async def configure(request):
        await held.wait()
        return pb.ConfigureResponse()

    async with stage.hosting(registration_timeout=60) as host:
        slow = stage.plugin("10", "slow", hooks={"Configure": configure})
        await slow.connect()
        await slow.register()
        silent = stage.plugin("11", "silent")
        await silent.connect()
        await stage.join("20", "quick")
        assert [str(item) for item in host.active()] == ["20-quick"]
        held.set()
        await host.wait_for("10-slow")


async def test_a_connection_registers_once(stage):
    async with stage.hosting() as host:
        plugin = await stage.join()
        plugin.name = "other"
        with pytest.raises(FailedPrecondition, match="registered already"):
            await plugin.register()
        assert [str(item) for item in host.active()] == ["10-noting"]


async def test_updates_come_after_registration(stage):
    async with stage.hosting():
        plugin = stage.plugin()
        await plugin.connect()
        with pytest.raises(FailedPrecondition, match="RegisterPlugin and Configure come first"):
            await plugin.connection.call(methods.UPDATE_CONTAINERS, pb.UpdateContainersRequest(), within=60)
        await plugin.register()


async def test_a_method_that_is_none_is_answered_so(stage):
    from podwire.protocols.grpc_methods import Unary

    async with stage.hosting():
        plugin = await stage.join()
        for service, name, words in [
            (methods.RUNTIME_SERVICE, "Nothing", "method Nothing"),
            ("nri.pkg.api.v1alpha1.Nobody", "RegisterPlugin", "service nri.pkg.api.v1alpha1.Nobody"),
        ]:
            with pytest.raises(Unimplemented, match=words):
                await plugin.connection.call(Unary(service, name, pb.Empty, pb.Empty), pb.Empty(), within=60)


def mux_frame(conversation, data):
    return struct.pack(">II", conversation, len(data)) + data


def ttrpc_frame(stream, kind, data, length=None):
    return struct.pack(">IIBB", len(data) if length is None else length, stream, kind, 0) + data


GARBAGE = {
    "noise": random.Random(7).randbytes(5000),
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a mux frame of four gigabytes": struct.pack(">II", mux.RUNTIME_SERVICE, 0xFFFFFFFF) + b"x" * 100,
    "conversations that there are none of": mux_frame(0, b"abc") + mux_frame(77, b"def"),
    "a request that is not a message": mux_frame(mux.RUNTIME_SERVICE, ttrpc_frame(1, 1, b"\xff\xff\xff")),
    "a stream with an even number": mux_frame(mux.RUNTIME_SERVICE, ttrpc_frame(2, 1, b"")),
    "an answer for no request": mux_frame(mux.PLUGIN_SERVICE, ttrpc_frame(9, 2, b"")),
    "data for no stream": mux_frame(mux.RUNTIME_SERVICE, ttrpc_frame(5, 3, b"x")),
    "a frame of no kind": mux_frame(mux.RUNTIME_SERVICE, ttrpc_frame(1, 200, b"x")),
    "half a header": b"\0\0",
    "half a frame": mux_frame(mux.RUNTIME_SERVICE, ttrpc_frame(1, 1, b"abc", length=4000)),
    "a frame that is too long": mux_frame(mux.RUNTIME_SERVICE, ttrpc_frame(1, 1, b"abc", length=(4 << 20) + 1)),
    "nothing": b"",
}


@pytest.mark.parametrize("ending", ["closes", "half-closes", "stays"])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_is_one_connections_own_matter(stage, pod, garbage, ending):
    async with stage.hosting(registration_timeout=0.2) as host:
        reader, writer = await asyncio.open_unix_connection(stage.socket)
        writer.write(garbage)
        if ending == "half-closes":
            writer.write_eof()
        if ending != "closes":
            async with asyncio.timeout(60):
                while await reader.read(65536):
                    pass
        writer.close()
        good = await joined_in_time(stage)
        await host.run_pod_sandbox(pod())
        assert good.heard == ["RunPodSandbox p1"]


async def joined_in_time(stage):
    """A plugin, with a limit for registration that a loaded machine may miss: tried until it is in."""
    while True:
        plugin = stage.plugin()
        await plugin.connect()
        with contextlib.suppress(MuxConnectionError):
            await plugin.register()
        known = asyncio.ensure_future(plugin.synchronized.wait())
        await asyncio.wait([known, plugin.connection.closed], return_when=asyncio.FIRST_COMPLETED)
        if known.done():
            await stage.host.wait_for("noting")
            return plugin
        known.cancel()


async def test_garbage_from_a_plugin_costs_its_own_registration_only(stage, pod):
    async with stage.hosting() as host:
        bad = await stage.join("10", "bad")
        good = await stage.join("20", "good")
        bad.connection._transport.write(struct.pack(">II", mux.RUNTIME_SERVICE, 0xFFFFFFFF))
        await bad.closed()
        await eventually_async(lambda: len(host.active()) == 1)
        await host.run_pod_sandbox(pod())
        assert good.heard == ["RunPodSandbox p1"]


async def test_an_invalid_response_fails_the_hook(stage, pod):
    async def lying(request):
        return pb.PodSandbox(id="x", name="\N{SNOWMAN}" * 10)

    async def huge(request):
        return pb.PodSandbox(id="x" * (5 << 20))

    async with stage.hosting() as host:
        await stage.join("10", "huge", hooks={"CreateContainer": huge, "RunPodSandbox": lying})
        await host.run_pod_sandbox(pod())  # fields that nobody knows are no error in protobuf
        with pytest.raises(ResourceExhausted, match="NRI plugin 10-huge, CreateContainer"):
            await host.create_container(pod(), pb.Container(id="c1"))
        assert len(host.active()) == 1


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


async def test_connections_that_come_and_go_leave_nothing(stage):
    async with stage.hosting():
        before = descriptors()
        for _ in range(50):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(stage.socket))
                await asyncio.sleep(0)
        await eventually_async(lambda: descriptors() <= before)


async def test_callbacks_get_every_registration_and_may_fail(stage):
    heard = []
    async with stage.hosting() as host:
        host.on_registered.append(lambda plugin: 1 / 0)
        host.on_registered.append(lambda plugin: heard.append(str(plugin)))
        plugin = await stage.join()
        await plugin.leave()
        await eventually_async(lambda: not host.active())
        await stage.join()
        await eventually_async(lambda: heard == ["10-noting", "10-noting"])

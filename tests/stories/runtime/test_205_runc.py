"""Where there is no crun, runc does it."""

import socket
from pathlib import Path

import aiohttp

from podwire.linux.proc.namespaces import visit
from podwire.protocols.cri import cri_pb2 as pb
from tests.stories.runtime.test_210_commands import V5, Talk


def groups_left(parent):
    return [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{parent}")]


async def in_terminal(cri, runtime, id_, script):
    """The output and exit code of a shell script at a terminal."""

    def inside(address):
        with visit(f"/proc/{runtime.space.pid}/ns/net"):
            return socket.socket(address[0], address[1], address[2])

    url = (await cri("Exec", container_id=id_, cmd=["sh", "-c", script], tty=True, stdin=True, stdout=True)).url
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=inside)) as session,
        session.ws_connect(url, protocols=[V5]) as websocket,
    ):
        talk = Talk(websocket)
        await talk.hear()
    return talk.stdout, talk.outcome.code


async def test_a_pod_lives_on_runc_and_leaves_nothing(own, kubelet_of):
    own.flags = ["--oci-runtime", "runc"]
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod)
        groups = await cri.said(id_, "cat /proc/self/cgroup")
        assert f":/{own.options.cgroup_parent}/{id_}\n" in groups, "counted where the runtime looks"
        assert (await cri.exec(id_, "exit 3")).exit_code == 3
        assert await in_terminal(cri, own, id_, "test -t 1 && echo a terminal; exit 4") == (b"a terminal\r\n", 4)
        await cri("StopContainer", container_id=id_, timeout=5)
        ended = await cri.status(id_)
        assert (ended.state, ended.exit_code) == (pb.CONTAINER_EXITED, 0)
        killed = await cri.start(pod, "trap '' TERM; while :; do sleep 0.1; done", name="stubborn")
        await cri("StopContainer", container_id=killed, timeout=0)
        assert (await cri.status(killed)).exit_code == 137
        await cri.remove(pod)
    own.stop()
    assert groups_left(own.options.cgroup_parent) == []

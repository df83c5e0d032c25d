"""Where there is no crun, runc does it."""

from pathlib import Path

from podwire.protocols.cri import cri_pb2 as pb


def groups_left(parent):
    return [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{parent}")]


async def test_a_pod_lives_on_runc_and_leaves_nothing(own, kubelet_of):
    own.flags = ["--oci-runtime", "runc"]
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod)
        groups = await cri.said(id_, "cat /proc/self/cgroup")
        assert f":/{own.options.cgroup_parent}/{id_}\n" in groups, "counted where the runtime looks"
        assert (await cri.exec(id_, "exit 3")).exit_code == 3
        await cri("StopContainer", container_id=id_, timeout=5)
        ended = await cri.status(id_)
        assert (ended.state, ended.exit_code) == (pb.CONTAINER_EXITED, 0)
        killed = await cri.start(pod, "trap '' TERM; while :; do sleep 0.1; done", name="stubborn")
        await cri("StopContainer", container_id=killed, timeout=0)
        assert (await cri.status(killed)).exit_code == 137
        await cri.remove(pod)
    own.stop()
    assert groups_left(own.options.cgroup_parent) == []

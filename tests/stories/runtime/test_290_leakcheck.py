"""`podwire leakcheck` finds what the stories plant, and nothing in a healthy runtime."""

import shutil


async def test_leakcheck_lists_resources_without_records_only(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        pod = await cri.run()
        id_ = await cri.start(pod)
        assert own.leakcheck() == (0, [])
        own.kill()
        for kind in ("sandboxes", "containers"):
            shutil.move(own.state / "runtime" / kind, own.prefix / kind)
        code, found = own.leakcheck()
        assert code == 1
        kinds = {item["kind"] for item in found}
        assert {"netns", "ipcns", "mount", "cgroup", "process", "shim", "CNI attachment", "writable layer"} <= kinds
        assert {item["owner"] for item in found if item["kind"] != "socket"} == {pod.id, id_}
        for kind in ("sandboxes", "containers"):
            shutil.move(own.prefix / kind, own.state / "runtime" / kind)
        own.start()
        await cri.remove(pod)
        assert own.leakcheck() == (0, [])
    assert own.stop() == 0
    assert own.leaks() == []

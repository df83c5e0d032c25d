"""A plugin that cannot delete for a while: what it kept from going goes when it can, by whichever memory of the pod."""

import shutil

from tests.eventually import eventually_async

PLUGIN = """#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}' ;;
DEL) [ ! -e "$0.stuck" ] || { echo '{"cniVersion": "1.1.0", "code": 50, "msg": "stuck"}'; exit 1; } ;;
esac
"""


async def test_an_orphaned_namespace_is_removed_without_a_restart(own, kubelet_of):
    programs = own.prefix / "plugins"
    programs.mkdir()
    plugin, stuck = programs / "slow", programs / "slow.stuck"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    own.plugins = [programs]
    own.configure({"cniVersion": "1.1.0", "name": "story", "plugins": [{"type": "slow"}]})
    own.start()
    async with kubelet_of(own) as cri:
        lost = await cri.run()
    own.kill()
    stuck.touch()
    record = own.state / "runtime/sandboxes" / lost.id / "record.json"
    shutil.rmtree(record.parent)
    own.start()
    pinned = own.prefix / "run/netns" / f"podwire-{lost.id}"
    assert pinned.exists(), "its plugin may still need it"
    stuck.unlink()
    await eventually_async(lambda: not pinned.exists(), 40)
    assert list((own.state / "cni/cache").iterdir()) == []
    assert own.stop() == 0

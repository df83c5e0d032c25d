"""Directories in which plugins of a node put their sockets."""

import os
from pathlib import Path

from podwire.cluster.kubelet_plugins import PluginSockets


async def test_a_directory_that_goes_while_it_is_looked_at_is_passed_over(tmp_path, monkeypatch):
    going = tmp_path / ".going"
    going.mkdir()
    scan = os.scandir

    def gone_by_then(path):
        if Path(path) == going:
            going.rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", gone_by_then)
    changes = PluginSockets().changes(tmp_path)
    await anext(changes)
    assert not going.exists()
    (tmp_path / "plugin.sock").touch()
    await anext(changes)
    await changes.aclose()

"""A containerd of its own for tests that need a runtime which is not ours."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually

UNPACKED = Path(sys.prefix, "debian/usr/bin/containerd")

CONFIG = """
version = 2
root = "{place}/root"
state = "{place}/state"
disabled_plugins = [
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{place}/s"
[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{place}/cni"
bin_dir = "{place}/bin"
"""


def containerd_binary() -> str:
    found = shutil.which("containerd") or (str(UNPACKED) if UNPACKED.exists() else None)
    if found is None:
        pytest.fail("containerd is not there: scripts/setup unpacks it")
    return found


def wait_for(socket_path: Path, process: subprocess.Popen, log: Path) -> None:
    """Waits until containerd accepts connections; fails at once when it has exited."""

    def accepts_or_exited() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(socket_path)) == 0 or process.poll() is not None

    eventually(accepts_or_exited, explain=lambda: log.read_text()[-2000:])
    if process.poll() is not None:
        pytest.fail(f"containerd did not start:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def containerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a containerd that runs no pods and has no network."""
    place = tmp_path_factory.mktemp("containerd")
    config, log = place / "config.toml", place / "log"
    config.write_text(CONFIG.format(place=place))
    with log.open("wb") as output:
        process = subprocess.Popen([containerd_binary(), "--config", config], stdout=output, stderr=output)
        try:
            wait_for(place / "s", process, log)
            yield place / "s"
        finally:
            process.terminate()
            process.wait(10)

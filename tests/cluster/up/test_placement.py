import socket
import tempfile
from pathlib import Path

import pytest

from podwire.cluster.up import placement


@pytest.fixture
def port():
    """A port for the kubelet that is free: another process of this machine may use the real one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_an_empty_host_can_be_a_node(tmp_path, port):
    (tmp_path / "etc/cni/net.d").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "etc/cni/net.d/10-podwire.conflist").touch()
    assert placement.owners(tmp_path, port) == []


def test_users_of_the_host_paths_are_named(tmp_path, port):
    (tmp_path / "etc/cni/net.d").mkdir(parents=True)
    (tmp_path / "etc/cni/net.d/10-flannel.conflist").touch()
    (tmp_path / "var/lib/kubelet/pods").mkdir(parents=True)
    assert placement.owners(tmp_path, port) == [
        f"the network configuration {tmp_path}/etc/cni/net.d/10-flannel.conflist",
        f"a kubelet's {tmp_path}/var/lib/kubelet",
    ]


def test_a_socket_counts_only_with_a_listener(port):
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as short, socket.socket(socket.AF_UNIX) as door:
        path = Path(short, "run/containerd/containerd.sock")
        path.parent.mkdir(parents=True)
        door.bind(str(path))
        assert placement.owners(Path(short), port) == []
        door.listen()
        assert placement.owners(Path(short), port) == [f"containerd at {path}"]


def test_a_port_with_a_listener_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        assert placement.owners(tmp_path, port) == [f"a listener on port {port}"]

"""`podwire kubelet`: what it refuses, and how it lives without those whom it needs."""

import json

import pytest

from podwire.cli.kubelet import refuse_swap
from podwire.cli.main import UserError
from podwire.linux.machine import KernelMachine


@pytest.fixture
def server(daemon, tmp_path):
    """The kubeconfig of an API server."""
    server = daemon("apiserver", "--data-dir", str(tmp_path / "api"), "--listen", "127.0.0.1:0", "--store", "memory://")
    server.wait_for("serving")
    return str(tmp_path / "api/kubeconfig")


@pytest.fixture
def flags(tmp_path):
    """Of a kubelet that disturbs nobody."""
    return [
        "--runtime", f"unix://{tmp_path}/cri.sock", "--node-name", "here", "--root-dir", str(tmp_path / "root"),
        "--pod-logs-dir", str(tmp_path / "logs"), "--address", "127.0.0.1", "--port", "0", "--node-ip", "192.0.2.1",
        "--cni-dir", str(tmp_path / "cni"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "error"),
    [
        pytest.param(["--kubeconfig", "/no/such/file"], "/no/such/file", id="no such kubeconfig"),
        pytest.param(["--runtime", "tcp://somewhere"], "expected unix:///PATH", id="no socket"),
    ],
)
def test_unusable_options_are_one_line_errors(podwire, server, flags, more, error):
    done = podwire("kubelet", "--kubeconfig", server, *flags, *more)
    assert done.returncode == 1
    assert error in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("flag", "value", "error"),
    [
        ("--node-ip", "here", "'here' does not appear to be an IPv4 or IPv6 address"),
        ("--pod-cidr", "10.0.0.1/8", "has host bits set"),
        ("--node-labels", "lonely", "expected KEY=VALUE"),
        ("--register-with-taints", "a=b:Sometimes", "expected KEY=VALUE:EFFECT"),
        ("--max-pods", "many", "invalid int value"),
    ],
    ids=["address", "network", "label", "taint", "number"],
)
def test_an_invalid_option_is_named(podwire, flag, value, error):
    done = podwire("kubelet", "--kubeconfig", "any", flag, value)
    assert done.returncode == 2
    assert flag in done.stderr
    assert error in done.stderr


def test_without_a_runtime_the_kubelet_reports_it_and_waits(daemon, server, flags):
    kubelet = daemon("kubelet", "--kubeconfig", server, *flags)
    kubelet.wait_for("is running")
    kubelet.wait_for("runtime does not answer")
    kubelet.wait_for("registered")
    assert kubelet.stop() == 0
    assert "Traceback" not in "".join(kubelet.lines), "".join(kubelet.lines)


def test_without_an_api_server_it_waits(daemon, server, flags, tmp_path):
    config = json.loads((tmp_path / "api/kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    kubeconfig = tmp_path / "elsewhere"
    kubeconfig.write_text(json.dumps(config))
    kubelet = daemon("kubelet", "--kubeconfig", str(kubeconfig), *flags)
    kubelet.wait_for("runtime does not answer")
    assert kubelet.process.poll() is None
    assert kubelet.stop() == 0
    assert "Traceback" not in "".join(kubelet.lines), "".join(kubelet.lines)


def test_two_do_not_share_a_directory(daemon, podwire, server, flags):
    daemon("kubelet", "--kubeconfig", server, *flags).wait_for("is running")
    done = podwire("kubelet", "--kubeconfig", server, *flags)
    assert done.returncode == 1
    assert "another kubelet uses" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_forbidden_identity_is_reported_without_a_traceback(daemon, server, flags, tmp_path):
    config = json.loads((tmp_path / "api/kubeconfig").read_text())
    config["users"][0]["user"] = {"token": "nobody-knows-me"}
    kubeconfig = tmp_path / "stranger"
    kubeconfig.write_text(json.dumps(config))
    kubelet = daemon("kubelet", "--kubeconfig", str(kubeconfig), *flags)
    assert "Unauthorized" in kubelet.wait_for("cannot register")
    assert kubelet.stop() == 0
    assert "Traceback" not in "".join(kubelet.lines), "".join(kubelet.lines)


def test_swap_is_refused_with_the_names_of_its_devices(tmp_path):
    swaps = tmp_path / "proc/swaps"
    swaps.parent.mkdir()
    swaps.write_text("Filename Type Size Used Priority\n")
    refuse_swap(KernelMachine(tmp_path))
    swaps.write_text("Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n/swapfile file 1 0 -3\n")
    with pytest.raises(UserError, match=r"running with swap on is not supported, .*: /dev/sda2, /swapfile: "):
        refuse_swap(KernelMachine(tmp_path))

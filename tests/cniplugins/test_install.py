"""The programs, put in place."""

import json
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import podwire.cniplugins.install
from podwire.cli.main import main
from podwire.cniplugins.install import NOTE, Foreign, install, script
from podwire.cniplugins.skeleton import PLUGINS

NAMES = sorted(PLUGINS)


@pytest.fixture(params=["compiled", "scripts"])
def installed(request, monkeypatch):
    """Where there is a compiler, and where there is none."""
    if request.param == "scripts":
        monkeypatch.setattr(podwire.cniplugins.install, "find_forwarder", lambda: None)
    return [NOTE, *NAMES] if request.param == "compiled" else NAMES


def test_all_executables_are_installed_and_can_be_replaced(tmp_path, installed):
    paths = install(str(tmp_path / "bin"))
    assert [Path(path).name for path in paths] == NAMES
    assert sorted(path.name for path in (tmp_path / "bin").iterdir()) == installed
    assert {oct((tmp_path / "bin" / name).stat().st_mode & 0o7777) for name in NAMES} == {"0o755"}
    assert install(str(tmp_path / "bin")) == paths


def test_installed_executables_run(tmp_path, installed):
    for item in install(str(tmp_path), socket=str(tmp_path / "nobody.sock")):
        done = subprocess.run([item], env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True)
        assert json.loads(done.stdout)["cniVersion"] == "1.1.0"


def test_executable_that_is_replaced_while_it_starts_knows_its_name(tmp_path):
    install(str(tmp_path), socket=str(tmp_path / "nobody.sock"))
    config = {"cniVersion": "1.1.0", "name": "net", "type": "loopback"}
    env = {"CNI_COMMAND": "STATUS", "CNI_PATH": str(tmp_path)}
    with (tmp_path / "loopback").open("rb") as program:
        (tmp_path / "loopback").unlink()
        path, descriptor = f"/proc/self/fd/{program.fileno()}", program.fileno()
        text = json.dumps(config).encode()
        done = subprocess.run([path], input=text, env=env, pass_fds=[descriptor], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


@contextmanager
def dhcp_daemon(*words, **arguments):
    """A process that serves, and the text that it wrote until then."""
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **arguments) as process:
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "is serving" in line:
                    break
            yield process, "".join(lines)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_dhcp_executable_is_the_daemon_for_units_of_the_reference_plugin(tmp_path, installed):
    install(str(tmp_path / "bin"))
    socket_path, pidfile = tmp_path / "run" / "dhcp.sock", tmp_path / "dhcp.pid"
    words = [tmp_path / "bin" / "dhcp", "daemon", "-socketpath", socket_path, "-pidfile", pidfile, "--timeout=1m2s"]
    with dhcp_daemon(*words) as (process, text):
        assert f"socket={socket_path}" in text
        assert pidfile.read_text() == f"{process.pid}\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(socket_path))
    assert (process.returncode, pidfile.exists(), socket_path.exists()) == (0, False, False)
    refused = subprocess.run([*words[:2], "-broadcast"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "unrecognized arguments: -broadcast" in refused.stderr


def test_dhcp_daemon_serves_the_socket_of_systemd(tmp_path):
    install(str(tmp_path / "bin"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "dhcp.sock"))
        listener.listen()
        code = "os.dup2(int(sys.argv[1]), 3); os.environ |= {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())}"
        words = [sys.executable, "-c", f"import os, sys; {code}; os.execv(sys.argv[2], sys.argv[2:])"]
        words += [str(listener.fileno()), str(tmp_path / "bin" / "dhcp"), "daemon"]
        with dhcp_daemon(*words, pass_fds=[listener.fileno()]) as (process, text):
            assert f"socket={tmp_path / 'dhcp.sock'}" in text
    assert process.returncode == 0
    assert (tmp_path / "dhcp.sock").exists(), "systemd removes it"


def test_settings_file_has_the_socket_and_the_command(tmp_path):
    install(str(tmp_path), socket="/run/elsewhere.sock")
    lines = (tmp_path / NOTE).read_text().splitlines()
    assert lines[:3] == ["socket /run/elsewhere.sock", f"run {Path(sys.executable).resolve()}", "run -IS"]


def test_socket_path_with_a_newline_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must not contain a newline"):
        install(str(tmp_path), socket="/run/a\nrun /bin/sh")


def test_foreign_executables_are_replaced_only_with_force(tmp_path):
    (tmp_path / "portmap").write_text("theirs")
    with pytest.raises(Foreign, match="portmap"):
        install(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["portmap"]
    install(str(tmp_path), force=True)
    assert b"podwire" in (tmp_path / "portmap").read_bytes()


def test_symbolic_link_is_foreign(tmp_path):
    (tmp_path / "bridge").symlink_to("/bin/true")
    with pytest.raises(Foreign):
        install(str(tmp_path))


def test_command_installs_and_prints_the_paths(tmp_path, capsys):
    assert main(["cni", "install", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in NAMES]
    (tmp_path / "bridge").write_text("theirs")
    assert main(["cni", "install", str(tmp_path)]) == 1
    assert "not ours" in capsys.readouterr().err
    assert main(["cni", "install", "--force", str(tmp_path)]) == 0


def test_script_names_the_real_interpreter():
    assert script("bridge").decode().splitlines()[0] == f"#!{Path(sys.executable).resolve()} -IS"


def test_without_its_daemon_a_plugin_of_a_host_without_python_asks_to_be_called_again(tmp_path):
    install(str(tmp_path), socket=str(tmp_path / "nobody.sock"), daemon_only=True)
    assert (tmp_path / NOTE).read_text() == f"socket {tmp_path}/nobody.sock\n"
    done = subprocess.run(
        [tmp_path / "bridge"], input=b"{}", env={"CNI_COMMAND": "ADD"}, capture_output=True, check=False
    )
    error = json.loads(done.stdout)
    assert (done.returncode, error["code"]) == (1, 11)
    assert f"does not answer at {tmp_path}/nobody.sock" in error["msg"]


def test_network_is_installed_after_validation(tmp_path, capsys):
    good, bad, target = tmp_path / "good", tmp_path / "bad", tmp_path / "conf/10.conflist"
    good.write_text('{"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "loopback"}]}')
    bad.write_text('{"name": "n", "plugins": []}')
    command = ["cni", "install", str(tmp_path / "bin"), "--network-file", str(target), "--network"]
    assert main([*command, str(bad)]) == 1
    assert "plugins: empty" in capsys.readouterr().err
    assert not (tmp_path / "bin").exists()
    assert main([*command, str(good)]) == 0
    assert target.read_bytes() == good.read_bytes()
    assert main([*command[:-1]]) == 1
    assert "belong together" in capsys.readouterr().err

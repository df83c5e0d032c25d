"""The helper that calls without a daemon start: one for all, as exact as a process of their own, and gone when idle."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import podwire
from podwire.cniplugins.daemon import helper
from podwire.cniplugins.install import NOTE, install
from podwire.durable.locks import lock_file
from podwire.linux.net.network import KernelNetwork
from tests.eventually import eventually

DUAL = ("10.88.0.0/24", "fd88::/64")
HOME = str(Path(podwire.__file__).parents[1])


def processes(directory: Path) -> list[int]:
    """Helpers with their sockets in a directory."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(directory).encode() in words:
            pids.append(int(path.name))
    return pids


class Installed:
    def __init__(self, root: Path) -> None:
        self.programs, self.helpers = root / "helped", root / "run" / "helpers"
        self.again()

    def again(self, idle: float = 60.0) -> None:
        install(str(self.programs), socket=str(self.programs / "nobody.sock"), helpers=str(self.helpers), idle=idle)

    def reword(self, old: str, new: str) -> None:
        """Another program for helpers."""
        note = self.programs / NOTE
        assert f"serve {old}" in note.read_text()
        note.write_text(note.read_text().replace(f"serve {old}", f"serve {new}"))

    def pids(self) -> list[int]:
        return processes(self.helpers)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.helpers.iterdir()) if self.helpers.exists() else []

    def gone(self) -> bool:
        return not self.pids() and not self.files()


@pytest.fixture
def helped(host):
    """Programs whose calls start helpers, which are ended with the test."""
    installed = Installed(host.root)
    host.programs, host.way = installed.programs, "program"
    yield installed
    for pid in installed.pids():
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not installed.pids())


def outcome(process: subprocess.Popen) -> tuple[int, dict | None]:
    stdout, stderr = process.communicate(timeout=60)
    assert stderr == b""
    return process.returncode, json.loads(stdout) if stdout else None


def test_first_calls_start_one_helper_that_serves_all(host, helped):
    names = [f"p{number}" for number in range(16)]
    config = host.bridge(*DUAL, ipMasq=True)
    for name in names:
        host.pod(name)
    results = [outcome(process) for process in [host.run("ADD", name, config) for name in names]]
    assert {code for code, _ in results} == {0}
    assert len({ip["address"] for _, result in results for ip in result["ips"]}) == 32
    [pid] = helped.pids()
    host.check("p0", config, results[0][1])
    host.pod("foreign")
    with KernelNetwork(host.namespaces.path("p0")) as pod:
        assert "eth0" in [link.name for link in pod.links.list()]
    assert {outcome(process) for process in [host.run("DEL", name, config) for name in names]} == {(0, None)}
    assert helped.pids() == [pid]
    assert host.left() == {}


def test_errors_and_exit_codes_are_those_of_a_process(host, helped, refused):
    host.pod("a")
    with refused(7, "bridge: 'a/b' is not a valid interface name"):
        host.add("a", host.bridge(bridge="a/b"))
    with refused(6, "standard input"):
        host.call("ADD", "a", b"{", plugin="bridge")
    with refused(4, "CNI_CONTAINERID"):
        host.call("ADD", "a", host.bridge(), CNI_CONTAINERID="")
    assert len(helped.pids()) == 1


def test_helper_has_nothing_of_its_caller(host, helped):
    host.pod("a")
    host.add("a", host.bridge(), SECRET="x", PODWIRE_FAILPOINTS="cni.bridge-recorded=off")
    [pid] = helped.pids()
    assert Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")[0].startswith(b"PATH=")
    assert b"SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert os.getsid(pid) != os.getsid(0)
    streams = {Path(f"/proc/{pid}/fd/{number}").readlink() for number in range(3)}
    assert streams == {Path("/dev/null")}
    assert helped.helpers.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_call_after_the_end_of_a_helper_starts_another(host, helped, number):
    host.pod("a")
    config = host.bridge()
    result = host.add("a", config)
    [first] = helped.pids()
    ended = os.pidfd_open(first)
    os.kill(first, number)
    # A process that ends has no command line before it closes its socket, and a call that connects then works alone.
    assert select.select([ended], [], [], 60)[0]
    os.close(ended)
    host.check("a", config, result)
    [second] = helped.pids()
    assert second != first
    host.delete("a", config)
    assert host.left() == {}


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program"])
def test_helper_that_does_not_start_is_replaced_by_a_process(host, helped, program):
    helped.reword(str(Path(sys.executable).resolve()), program)
    host.pod("a")
    host.check("a", host.bridge(), host.add("a", host.bridge()))
    host.delete("a", host.bridge())
    assert host.left() == {}
    assert helped.pids() == []


def test_helper_that_is_killed_before_it_begins_leaves_the_call_to_a_process(host, helped):
    """All connections that wait for it are refused at once."""
    slow = host.root / "slow"
    slow.write_text("#!/usr/bin/python3\nimport time\ntime.sleep(1000)\n")
    slow.chmod(0o755)
    helped.reword(str(Path(sys.executable).resolve()), str(slow))
    names = [f"p{number}" for number in range(3)]
    for name in names:
        host.pod(name)
    adding = [host.run("ADD", name, host.bridge()) for name in names]
    [pid] = eventually(helped.pids)
    with pytest.raises(subprocess.TimeoutExpired):
        adding[0].wait(0.2)
    helped.again()  # nobody else waits for the slow one
    os.kill(pid, signal.SIGKILL)
    assert [outcome(process)[0] for process in adding] == [0, 0, 0]
    for name in names:
        host.delete(name, host.bridge())
    assert host.left() == {}


@pytest.mark.parametrize("point", ["cnidaemon.begun", "cni.bridge-recorded", "cni.bridge-connected"])
def test_del_releases_what_a_killed_helper_left(host, helped, point):
    python = str(Path(sys.executable).resolve())
    helped.reword(python, f"/usr/bin/env\nserve PODWIRE_FAILPOINTS={point}=kill\nserve {python}")
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    code, error = outcome(host.run("ADD", "a", config))
    assert (code, error["code"]) == (1, 11)
    assert str(helped.helpers) in error["msg"]
    helped.again()
    assert outcome(host.run("DEL", "a", config)) == (0, None)
    assert host.left() == {}


def test_idle_helper_ends_and_leaves_nothing(host, helped):
    helped.again(idle=0.5)
    host.pod("a")
    host.add("a", host.bridge())
    assert len(helped.pids()) == 1
    eventually(helped.gone)
    host.delete("a", host.bridge())


def test_helper_ends_when_its_code_changes(host, helped):
    home = host.root / "home"
    shutil.copytree(Path(HOME, "podwire"), home / "podwire", ignore=shutil.ignore_patterns("__pycache__", "*.md"))
    helped.reword(HOME, str(home))
    host.pod("a")
    host.add("a", host.bridge())
    [pid] = helped.pids()
    changed = home / "podwire/cniplugins/ptp/plugin.py"
    changed.write_text(changed.read_text() + "\n")
    eventually(helped.gone)
    host.delete("a", host.bridge())
    assert pid not in helped.pids()


def test_helper_ends_when_its_socket_is_removed(host, helped):
    host.pod("a")
    host.add("a", host.bridge())
    shutil.rmtree(helped.helpers)
    eventually(lambda: not helped.pids())
    host.delete("a", host.bridge())


def test_each_mount_namespace_has_its_own_helper(host, helped, tmp_path):
    (tmp_path / "over").mkdir()
    config = {"cniVersion": "1.1.0", "name": "net", "type": "host-local"}
    config["ipam"] = {"type": "host-local", "dataDir": str(tmp_path / "over"), "subnet": "10.1.0.0/24"}
    host.call("ADD", "a", config)
    covered = 'mount -t tmpfs none "$0" && "$1" && ls "$0"/net'
    done = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", covered, tmp_path / "over", helped.programs / "host-local"],
        input=json.dumps(config).encode(),
        env=host.environment("ADD", "b"),
        capture_output=True,
        check=True,
    )
    assert b"@b@eth0" in done.stdout.splitlines()
    assert "@b@eth0" not in [path.name for path in (tmp_path / "over" / "net").iterdir()]
    assert len(helped.pids()) == 2
    assert len(helped.files()) == 4


@pytest.mark.parametrize("wrong", ["others may enter it", "another owner", "a symbolic link"])
def test_directory_that_is_not_root_only_is_not_used(host, helped, tmp_path, wrong):
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    helped.helpers.parent.mkdir()
    if wrong == "a symbolic link":
        helped.helpers.symlink_to(target)
    else:
        helped.helpers.mkdir(mode=0o755 if wrong == "others may enter it" else 0o700)
    if wrong == "another owner":
        os.chown(helped.helpers, 65534, 65534)
    host.pod("a")
    host.add("a", host.bridge())
    host.delete("a", host.bridge())
    assert (helped.pids(), helped.files(), list(target.iterdir())) == ([], [], [])


def test_files_of_dead_helpers_are_removed_by_the_next_one(host, helped):
    helped.helpers.mkdir(parents=True, mode=0o700)
    for name in ("1-dead.lock", "1-dead.sock", "2-alive.lock", "2-alive.sock"):
        (helped.helpers / name).touch()
    with lock_file(helped.helpers / "2-alive.lock"):
        host.pod("a")
        host.add("a", host.bridge())
        eventually(lambda: "1-dead.lock" not in helped.files())
        assert [name for name in helped.files() if name[1] == "-"] == ["2-alive.lock", "2-alive.sock"]
        host.delete("a", host.bridge())


def test_code_version_has_the_files_of_all_plugins():
    helper.import_plugins()
    names = {Path(path).parent.name for path in helper.code_version()}
    assert {"bridge", "host_local", "tuning"} <= names

"""The daemon that does what programs are asked: as they would, where they are, whatever happens to it or to them."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import podwire.cniplugins.daemon.server
from podwire.cniplugins.daemon import wire
from podwire.cniplugins.daemon.server import Daemon, Limits
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import visit
from tests.eventually import eventually

DUAL = ("10.88.0.0/24", "fd88::/64")
VERSION = {"CNI_COMMAND": "VERSION"}


@pytest.fixture
def way() -> str:
    return "daemon"


def finished(process: subprocess.Popen) -> tuple[int, dict | None]:
    stdout, stderr = process.communicate(timeout=60)
    assert stderr == b""
    return process.returncode, json.loads(stdout) if stdout else None


def links(netns: str | None = None) -> list[str]:
    with KernelNetwork(netns) as network:
        return [link.name for link in network.links.list()]


def test_daemon_works_in_the_namespace_of_the_caller(host):
    """Also for a delegate that is executed."""
    other, pod = host.pod("other"), host.pod("a")
    script = host.root / "theirs" / "ipam"
    script.parent.mkdir()
    script.write_text(f"""#!/bin/sh
        readlink /proc/self/ns/net >{host.root}/where
        echo '{{"cniVersion": "1.1.0", "ips": [{{"address": "10.88.0.9/24"}}]}}'
    """)
    script.chmod(0o755)
    config = host.bridge(bridge="there0") | {"ipam": {"type": "ipam"}}
    host.begin()
    with visit(other):
        host.add("a", config, CNI_PATH=str(script.parent))
    assert "there0" in links(other)
    assert "there0" not in links()
    assert "eth0" in links(pod)
    assert (host.root / "where").read_text().strip() == f"net:[{os.stat(other).st_ino}]"  # noqa: PTH116 - as the kernel says it
    with visit(other):
        host.delete("a", config, CNI_PATH=str(script.parent))
    assert [link for link in links(other) if link.startswith("veth")] == []


def test_relative_paths_begin_in_the_callers_directory(host, tmp_path):
    host.pod("a")
    config = host.bridge() | {"dataDir": "mine"}
    config["ipam"]["dataDir"] = "leases"
    program = host.begin() / "bridge"
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    for verb in ("ADD", "DEL"):
        environment = host.environment(verb, "a")
        done = subprocess.run([program], input=json.dumps(config).encode(), env=environment, cwd=cwd, check=False)
        assert done.returncode == 0
        assert bool(list((cwd / "mine" / "bridge").iterdir())) == (verb == "ADD")
    assert (cwd / "leases" / "net").exists()
    assert Path.cwd() != cwd


def test_caller_in_another_mount_namespace_is_declined(host, tmp_path):
    (tmp_path / "over").mkdir()
    config = {"cniVersion": "1.1.0", "name": "net", "type": "host-local"}
    config["ipam"] = {"type": "host-local", "dataDir": str(tmp_path / "over"), "subnet": "10.1.0.0/24"}
    program = host.begin() / "host-local"
    covered = 'mount -t tmpfs none "$0" && "$1" && ls "$0"/net'
    done = subprocess.run(
        ["unshare", "-m", "/bin/sh", "-c", covered, tmp_path / "over", program],
        input=json.dumps(config).encode(),
        env=host.environment("ADD", "a"),
        capture_output=True,
        check=True,
    )
    assert b"10.1.0.2" in done.stdout.splitlines()
    assert list((tmp_path / "over").iterdir()) == []


def test_concurrent_calls_are_all_answered(host):
    names = [f"p{number}" for number in range(64)]
    config = host.bridge(*DUAL, ipMasq=True)
    for name in names:
        host.pod(name)
    host.programs = host.begin()
    results = [finished(item) for item in [host.run("ADD", name, config) for name in names]]
    assert {code for code, _ in results} == {0}, [result for result in results if result[0]]
    assert len({address["address"] for _, result in results for address in result["ips"]}) == 128
    assert {finished(item) for item in [host.run("DEL", name, config) for name in names]} == {(0, None)}
    assert host.left() == {}


@pytest.mark.parametrize("rubbish", [b"", b"GET / HTTP/1.1\r\n\r\n", wire.CALL.pack(b"PWC1", 255, 1 << 31, 0)], ids=len)
def test_invalid_call_is_rejected_and_others_are_served(host, rubbish):
    host.begin()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(host.root / "cni.sock"))
        client.sendall(rubbish)
        client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert host.call("VERSION", "a", {"type": "bridge"})["cniVersion"] == "1.1.0"


def asked(host, path: Path, verb: str, id_: str, config: dict) -> socket.socket:
    """A whole call, sent."""
    stdin = json.dumps(config).encode()
    environment = b"".join(f"{key}={value}\0".encode() for key, value in host.environment(verb, id_).items())
    head = wire.CALL.pack(wire.MAGIC, len("bridge"), len(environment), len(stdin))
    files = [os.open(name, os.O_RDONLY) for name in ("/proc/thread-self/ns/net", "/proc/thread-self/ns/mnt", "/", "/")]
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    socket.send_fds(client, [head + b"bridge" + environment + stdin], files)
    for file in files:
        os.close(file)
    return client


def test_stop_serves_the_backlog_but_not_disconnected_callers(host, tmp_path):
    """All of them came before it took its first call."""
    for item in "abc":
        host.pod(item)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        clients = {letter: asked(host, tmp_path / "s", "ADD", letter, host.bridge()) for letter in "abc"}
        clients["b"].close()
        daemon = Daemon(listener, Limits(threads=1))
        daemon.start()
        daemon.stop()
        for item in "ac":
            with clients[item] as client:
                assert client.recv(1) == wire.BEGUN
                assert wire.ANSWER.unpack(client.recv(wire.ANSWER.size))[0] == 0
    assert {lease for lease in host.left()["leases"] if lease.startswith("@")} == {"@a@eth0", "@c@eth0"}
    host.way = "in process"
    for item in "ac":
        host.delete(item, host.bridge())
    assert host.left() == {}


def test_descriptors_of_callers_are_closed(host):
    host.begin()

    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    host.call("VERSION", "a", {"type": "bridge"})
    before = count()
    for body in (wire.CALL.pack(b"PWC1", 6, 10, 10), b"short", b"x" * 100):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(host.root / "cni.sock"))
            socket.send_fds(client, [body], [0] * 40)
    eventually(lambda: count() <= before)


def test_del_releases_what_a_disconnected_caller_left(host, tmp_path):
    """DEL comes while the ADD that was given up still goes on: it waits for its end."""
    gate = tmp_path / "gate"
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    with host.daemon_process(PODWIRE_FAILPOINTS=f"cni.bridge-leased=hold({gate})"):
        adding = host.run("ADD", "a", config)
        eventually((tmp_path / "gate.held").exists)
        adding.kill()
        adding.communicate()
        deleting = host.run("DEL", "a", config)
        with pytest.raises(subprocess.TimeoutExpired):
            deleting.wait(0.2)
        gate.touch()
        assert finished(deleting) == (0, None)
        assert host.left() == {}


def test_add_of_a_disconnected_caller_is_not_begun(host, tmp_path):
    """The program was notified of the begin, and was killed; the daemon comes to it only after the DEL that follows."""
    gate = tmp_path / "gate"
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    with host.daemon_process(PODWIRE_FAILPOINTS=f"cnidaemon.begun=1*hold({gate})->off"):
        with asked(host, host.root / "cni.sock", "ADD", "a", config) as caller:
            assert caller.recv(1) == wire.BEGUN
        eventually((tmp_path / "gate.held").exists)
        assert finished(host.run("DEL", "a", config)) == (0, None)
        gate.touch()
    assert host.left() == {}, "the daemon ends when all that it took is done"


@pytest.mark.parametrize("again", ["with another daemon", "without a daemon"])
@pytest.mark.parametrize("point", ["cni.bridge-recorded", "ipam.taken", "cni.bridge-connected", "cni.bridge-added"])
def test_del_releases_what_a_killed_daemon_left(host, point, again):
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    with host.daemon_process(PODWIRE_FAILPOINTS=f"{point}=kill") as killed:
        code, reported = finished(host.run("ADD", "a", config))
        assert (code, reported["code"]) == (1, 11)
        assert killed.wait(60) == -signal.SIGKILL
        if again == "without a daemon":
            assert finished(host.run("DEL", "a", config)) == (0, None)
            assert host.left() == {}
            return
    with host.daemon_process():
        assert finished(host.run("DEL", "a", config)) == (0, None)
    assert host.left() == {}


def test_del_completes_what_a_killed_daemon_began(host):
    host.pod("a")
    config = host.bridge(*DUAL, ipMasq=True)
    with host.daemon_process(PODWIRE_FAILPOINTS="cni.bridge-detached=kill"):
        assert finished(host.run("ADD", "a", config))[0] == 0
        assert finished(host.run("DEL", "a", config))[1]["code"] == 11
        assert finished(host.run("DEL", "a", config)) == (0, None)
    assert host.left() == {}


def test_stopped_daemon_finishes_its_calls(host, tmp_path):
    gate = tmp_path / "gate"
    host.pod("a")
    config = host.bridge(*DUAL)
    with host.daemon_process(PODWIRE_FAILPOINTS=f"cni.bridge-leased=hold({gate})") as daemon:
        adding = host.run("ADD", "a", config)
        eventually((tmp_path / "gate.held").exists)
        daemon.send_signal(signal.SIGTERM)

        def refused() -> bool:
            with socket.socket(socket.AF_UNIX) as client:
                return client.connect_ex(str(host.root / "cni.sock")) != 0

        eventually(refused)
        done = subprocess.run([host.programs / "bridge"], env=VERSION, capture_output=True, check=True)
        assert json.loads(done.stdout)["cniVersion"] == "1.1.0", "others do without it"
        gate.touch()
        code, result = finished(adding)
        assert (code, len(result["ips"])) == (0, 2)
        assert daemon.wait(60) == 0
    assert not (host.root / "cni.sock").exists()
    host.way = "program"
    host.delete("a", config)
    assert host.left() == {}


def test_two_daemons_do_not_share_a_socket(host):
    with host.daemon_process() as first:
        argv = [sys.executable, "-m", "podwire.cli.main", "cni", "daemon", "--socket", host.root / "cni.sock"]
        second = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert (second.returncode, second.stdout) == (1, "")
        assert "another server listens" in second.stderr
        assert first.poll() is None
        assert (host.root / "cni.sock").stat().st_mode & 0o7777 == 0o600


NOBODY = """
import os, socket, sys
from podwire.cniplugins.daemon import wire
from podwire.cniplugins.daemon.server import Daemon, Limits
from tests.eventually import eventually
client = socket.socket(socket.AF_UNIX)
os.setgid(65534)
os.setuid(65534)
client.connect(f"/proc/self/fd/{sys.argv[1]}/cni.sock")
body = wire.CALL.pack(wire.MAGIC, 6, 0, 0) + b"bridge"
paths = ("/proc/self/ns/net", "/proc/self/ns/mnt", "/", "/")
socket.send_fds(client, [body], [os.open(each, os.O_RDONLY) for each in paths])
answer = b""
while chunk := client.recv(1 << 16):
    answer += chunk
print(answer[1 + wire.ANSWER.size :].decode())
"""


def test_daemon_serves_root_only(host):
    host.begin()
    host.root.chmod(0o755)
    (host.root / "cni.sock").chmod(0o666)
    directory = os.open(host.root, os.O_RDONLY)
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, str(directory)], pass_fds=[directory], capture_output=True, text=True, check=True
    )
    os.close(directory)
    output = json.loads(done.stdout)
    assert (output["code"], "65534" in output["msg"]) == (4, True)


def test_bug_is_reported_and_the_next_call_is_served(host, refused, monkeypatch):
    host.begin()

    def broken(*_args: object) -> int:
        raise KeyError("what nobody thought of")

    with monkeypatch.context() as patched:
        patched.setattr(podwire.cniplugins.daemon.server, "visit", broken)
        with refused(999, "what nobody thought of"):
            host.call("VERSION", "a", {"type": "bridge"})
    assert host.call("VERSION", "a", {"type": "bridge"})["cniVersion"] == "1.1.0"


def test_unknown_plugin_is_an_error_with_its_name(host, refused):
    (host.begin() / "tap").write_bytes((host.begin() / "bridge").read_bytes())
    (host.begin() / "tap").chmod(0o755)
    host.pod("a")
    with refused(7, "tap"):
        host.add("a", host.bridge(type="tap"))


def test_more_callers_than_threads_are_queued(host):
    host.begin()
    with ThreadPoolExecutor(24) as pool:
        calls = [pool.submit(host.call, "VERSION", "a", {"type": "bridge"}) for _ in range(48)]
        assert {call.result(60)["cniVersion"] for call in calls} == {"1.1.0"}

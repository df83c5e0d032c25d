"""The daemon stops: with silent clients, with hanging calls, at any time."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from podwire.cniplugins.daemon import wire
from podwire.cniplugins.daemon.server import Daemon, Limits
from tests.eventually import eventually

PATIENCE = 60.0
HEAD = wire.CALL.pack(wire.MAGIC, len("bridge"), 100, 100)
PLACES = ("/proc/thread-self/ns/net", "/proc/thread-self/ns/mnt", "/", "/")


@pytest.fixture
def way() -> str:
    return "daemon"


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "s"))
        opened.listen()
        yield opened


def said(path, body: bytes) -> socket.socket:
    """A caller that sends so much, and the descriptors of a call with its first byte."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    client.settimeout(PATIENCE)
    files = [os.open(place, os.O_RDONLY) for place in PLACES]
    if body:
        socket.send_fds(client, [body], files)
    for file in files:
        os.close(file)
    return client


def stopped(daemon: Daemon, grace: float) -> bool | None:
    """The result of `stop`; None if it does not return."""
    events: list[bool] = []
    stopping = threading.Thread(target=lambda: events.append(daemon.stop(grace)), daemon=True)
    stopping.start()
    stopping.join(PATIENCE)
    return events[0] if events else None


@pytest.mark.parametrize("body", [b"", HEAD[:5], HEAD, HEAD + b"bridge"], ids=["nothing", "a bit", "a head", "a half"])
@pytest.mark.parametrize("when", ["it is heard", "it waits for its turn"])
def test_incomplete_calls_are_not_begun_at_stop(listener, body, when):
    answered: list[str] = []
    daemon = Daemon(listener, Limits(threads=1, receive=3600), answer=lambda name, _: answered.append(name) or 0)
    client = said(listener.getsockname(), body)
    if when == "it waits for its turn":
        with client, said(listener.getsockname(), b"") as other:
            daemon.start()
            assert stopped(daemon, 3600) is True
            assert other.recv(1) == client.recv(1) == b""
    else:
        daemon.start()
        with client:
            assert stopped(daemon, 3600) is True
            assert client.recv(1) == b""
    assert answered == []


def test_hanging_call_is_abandoned_after_the_grace(listener, caplog):
    begun, gate = threading.Event(), threading.Event()

    def hangs(_name: str, _streams: object) -> int:
        begun.set()
        gate.wait()
        return 0

    daemon = Daemon(listener, Limits(threads=2), answer=hangs)
    daemon.start()
    whole = wire.CALL.pack(wire.MAGIC, len("bridge"), 0, 0) + b"bridge"
    try:
        with said(listener.getsockname(), whole):
            assert begun.wait(PATIENCE)
            assert stopped(daemon, 0.1) is False
        assert "abandoned unfinished calls" in caplog.text
    finally:
        gate.set()
    assert stopped(daemon, PATIENCE) is True, "what was left is done by now"


def test_daemon_ends_by_sigterm_despite_a_hanging_call(host, tmp_path):
    host.pod("a")
    config = host.bridge()
    held = f"cni.bridge-leased=hold({tmp_path / 'never'})"
    with host.daemon_process("--grace", "0.5", PODWIRE_FAILPOINTS=held) as daemon:
        adding = host.run("ADD", "a", config)
        eventually((tmp_path / "never.held").exists)
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE) == 0
        adding.communicate(timeout=PATIENCE)
        assert adding.returncode == 1
    assert not (host.root / "cni.sock").exists()
    host.way = "program"
    host.delete("a", config)
    assert host.left() == {}


def test_daemon_ends_with_repeated_signals(host, tmp_path):
    host.pod("a")
    held = f"cni.bridge-leased=hold({tmp_path / 'never'})"
    with host.daemon_process("--grace", "2", PODWIRE_FAILPOINTS=held) as daemon:
        adding = host.run("ADD", "a", host.bridge())
        eventually((tmp_path / "never.held").exists)
        until = time.monotonic() + PATIENCE
        while daemon.poll() is None and time.monotonic() < until:
            daemon.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert daemon.returncode == 0
        adding.communicate(timeout=PATIENCE)
    assert not (host.root / "cni.sock").exists()
    host.way = "program"
    host.delete("a", host.bridge())


@pytest.mark.parametrize("moment", [0, 0.02, 0.1, 0.2, 0.3, 0.4, 0.6])
def test_daemon_ends_when_it_is_signalled_during_start(tmp_path, moment):
    path = tmp_path / "cni.sock"
    argv = [sys.executable, "-m", "podwire.cli.main", "cni", "daemon", "--socket", str(path)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as daemon:
        time.sleep(moment)
        daemon.terminate()
        try:
            _, reported = daemon.communicate(timeout=PATIENCE)
        finally:
            daemon.kill()
    assert daemon.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in reported
    assert not path.exists()

"""Unix sockets: in a directory that another server has locked, and listening ones."""

import asyncio
import os
import socket
import threading

import pytest

from podwire.durable.locks import LockHeld, lock_directory
from podwire.transports.unix_sockets import CannotListen, bind_socket, inherited_listener, is_stale, listening
from tests.eventually import eventually, eventually_async


def bind_to(opened):
    def bind(path):
        opened.bind(path)
        opened.listen()

    return bind


def waiting():
    return [thread for thread in threading.enumerate() if thread.name == "podwire-directory-lock"]


def is_locked(directory):
    try:
        lock_directory(directory).close()
    except LockHeld:
        return True
    return False


async def test_socket_is_bound_when_the_directory_is_free_again(tmp_path):
    with socket.socket(socket.AF_UNIX) as opened:
        with lock_directory(tmp_path):
            binding = asyncio.create_task(bind_socket(tmp_path / "s", bind_to(opened)))
            await asyncio.sleep(0.05)
            assert not binding.done()
        async with asyncio.timeout(20):
            bound = await binding
    assert bound.path.is_socket()
    assert not is_locked(tmp_path)


async def test_wait_for_a_directory_can_be_cancelled_and_leaves_no_lock(tmp_path):
    with socket.socket(socket.AF_UNIX) as opened:
        with lock_directory(tmp_path):
            binding = asyncio.create_task(bind_socket(tmp_path / "s", bind_to(opened)))
            await asyncio.sleep(0.05)
            binding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await binding
        await eventually_async(lambda: not waiting())
        await asyncio.sleep(0)
    assert not is_locked(tmp_path)
    assert not (tmp_path / "s").exists()


def test_lock_is_free_after_the_loop_has_ended(tmp_path):
    async def give_up():
        with socket.socket(socket.AF_UNIX) as opened, pytest.raises(TimeoutError):
            await asyncio.wait_for(bind_socket(tmp_path / "s", bind_to(opened)), 0.05)

    with lock_directory(tmp_path):
        asyncio.run(give_up())
    eventually(lambda: not waiting())
    assert not is_locked(tmp_path)


@pytest.mark.parametrize(
    "kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("directory", ["short", "d" * 120], ids=["short path", "path that is too long to connect to"])
def test_socket_is_stale_when_nobody_listens(tmp_path, monkeypatch, kind, directory):
    path = tmp_path / directory / "s"
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind("s")
        if kind != socket.SOCK_DGRAM:
            server.listen(1)
        assert not is_stale(path)
    assert is_stale(path)
    path.unlink()
    assert not is_stale(path)
    path.touch()
    assert not is_stale(path)


async def test_a_listening_socket_is_the_owners_alone_and_removed_at_the_end(tmp_path):
    path = tmp_path / "s"
    async with listening(path, 4) as listener:
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            listener.accept()[0].close()
    assert listener.fileno() == -1
    assert not path.exists()


def test_sockets_of_systemd_for_another_process_are_ignored(monkeypatch):
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("LISTEN_PID", str(os.getppid()))
    assert inherited_listener() is None


@pytest.mark.parametrize("count", ["2", "0", "", "x"])
def test_other_numbers_of_sockets_of_systemd_are_refused(monkeypatch, count):
    monkeypatch.setenv("LISTEN_FDS", count)
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    with pytest.raises(CannotListen, match=f"LISTEN_FDS={count}: must be one listening unix socket"):
        inherited_listener()

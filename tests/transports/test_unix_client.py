"""Connections to a unix socket in a directory with a long path."""

import asyncio
import contextlib
import os

import pytest

from podwire.transports.unix_client import UnixConnection


@pytest.fixture
async def directory(tmp_path):
    """A directory whose path is longer than that of a socket may be; an echo server of lines listens in it."""
    deep = tmp_path / ("d" * 120)
    deep.mkdir()

    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.write(b"end\n")
        writer.close()

    here = os.open(deep, os.O_PATH)
    server = await asyncio.start_unix_server(serve, f"/proc/self/fd/{here}/shim.sock")
    os.close(here)
    yield deep
    server.close()


async def test_lines_frames_and_the_end_of_one_direction(directory):
    with contextlib.closing(await UnixConnection.connect(directory, "shim.sock")) as connection:
        await connection.send(b"hello\nabcdef\n")
        assert await connection.receive_line() == "hello"
        assert await connection.receive_exactly(6) == b"abcdef"
        connection.finish()
        assert [await connection.receive_line() for _ in range(3)] == ["", "end", ""]
        assert await connection.receive_exactly(1) == b""


async def test_a_missing_socket_is_an_error(directory):
    with pytest.raises(OSError, match="No such file"):
        await UnixConnection.connect(directory, "other.sock")

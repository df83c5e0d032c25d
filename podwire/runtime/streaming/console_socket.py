"""The terminal of a command in a container: made there by the OCI runtime, which hands our end over."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

from podwire.runtime.streaming.exec_process import ExecProcess
from podwire.tasks import descriptors

NAME = "tty"


class ConsoleSocket:
    """A socket in a directory of one command, at which one terminal is handed over. Close it."""

    def __init__(self, work: Path) -> None:
        self._directory = os.open(work, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # the directory's own path may be longer than a socket's may be
        self.path = f"/proc/{os.getpid()}/fd/{self._directory}/{NAME}"
        try:
            self._socket.setblocking(False)
            self._socket.bind(self.path)
            self._socket.listen(1)
        except BaseException:
            self.close()
            raise

    async def terminal(self, inside: ExecProcess) -> int:
        """Our end, not blocking; -1 when the command ended without one."""
        taking = asyncio.create_task(self._taken())
        exited = asyncio.create_task(inside.exited())
        try:
            await asyncio.wait((taking, exited), return_when=asyncio.FIRST_COMPLETED)
            return taking.result() if taking.done() else -1
        finally:
            for each in (taking, exited):
                each.cancel()
            await asyncio.gather(taking, exited, return_exceptions=True)

    async def _taken(self) -> int:
        peer, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        with peer:
            await descriptors.readable(peer.fileno())
            _, files, _, _ = socket.recv_fds(peer, 256, 1)
        if not files:
            raise ConnectionError("the OCI runtime handed over no terminal")
        os.set_blocking(files[0], False)
        return files[0]

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(NAME, dir_fd=self._directory)
        os.close(self._directory)

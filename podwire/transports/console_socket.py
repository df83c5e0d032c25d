"""The console socket of an OCI runtime: it creates the terminal in the container and sends us our end (SCM_RIGHTS)."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

from podwire.tasks import descriptors

NAME = "tty"


class ConsoleSocket:
    """Listens in the directory of one exec, for one terminal. Must be closed."""

    def __init__(self, directory: Path) -> None:
        self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # the directory's own path may be longer than that of a socket may be
        self.path = f"/proc/{os.getpid()}/fd/{self._directory}/{NAME}"
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._socket.setblocking(False)
            self._socket.bind(self.path)
            self._socket.listen(1)
            undo.pop_all()

    async def receive(self) -> int:
        """Returns a non-blocking descriptor of the terminal. Raises ConnectionError when none was sent."""
        peer, _ = await asyncio.get_running_loop().sock_accept(self._socket)
        with peer:
            await descriptors.readable(peer.fileno())
            _, files, _, _ = socket.recv_fds(peer, 256, 1)
        if not files:
            raise ConnectionError("the OCI runtime sent no terminal")
        os.set_blocking(files[0], False)
        return files[0]

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(NAME, dir_fd=self._directory)
        os.close(self._directory)

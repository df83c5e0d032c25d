"""TCP connections from within a network namespace."""

import asyncio
import contextlib
import os
import socket

from podwire.linux.errors import LinuxError
from podwire.linux.proc.namespaces import visit
from podwire.tasks.uncancelled import thread_to_completion

_ADDRESSES = ((socket.AF_INET, "tcp4", "127.0.0.1"), (socket.AF_INET6, "tcp6", "::1"))


async def connect_port(netns: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to a port of the loopback interface; an empty namespace is the host's. Raises OSError.

    The text of the error is that of containerd, which kubectl port-forward shows.
    """
    failures = []
    for family, network, host in _ADDRESSES:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            return await asyncio.open_connection(sock=await _connect(netns, family, host, port))
        except (OSError, LinuxError) as error:
            cause = os.strerror(error.errno).lower() if error.errno else str(error)
            failures.append(f"dial {network} {address}: connect: {cause}")
    raise OSError(f"failed to connect to localhost:{port} inside the pod: {', '.join(failures)}")


async def connect_address(netns: str, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to an IP address from a namespace. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return await asyncio.open_connection(sock=await _connect(netns, family, host, port))


async def _connect(netns: str, family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as undo:
        opened = await thread_to_completion(_open, netns, family, undo)
        await asyncio.get_running_loop().sock_connect(opened, (host, port))
        undo.pop_all()
    return opened


def _open(netns: str, family: socket.AddressFamily, undo: contextlib.ExitStack) -> socket.socket:
    """Opens a socket in a namespace: it belongs to that namespace, wherever it is used."""
    with visit(netns) if netns else contextlib.nullcontext():
        opened = undo.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened

"""Pre-installed plugins: the files of a directory, their configuration, and their processes.

A process gets one end of a socket pair as descriptor 3, and is killed when its connection ends.
"""

import asyncio
import logging
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from podwire.linux.proc import processes
from podwire.protocols.nri.names import BadName, PluginId, from_file
from podwire.transports.mux_connection import MuxConnection, over_socket

log = logging.getLogger(__name__)

SOCKET_DESCRIPTOR = 3
"""The descriptor of the connection in the plugin's process, as NRI defines it."""
_WASM = b"\0asm"


@dataclass(frozen=True, slots=True)
class PreinstalledPlugin:
    """A program named NN-NAME."""

    id: PluginId
    path: Path


def find_plugins(directory: Path) -> tuple[list[PreinstalledPlugin], list[str]]:
    """Returns the plugins in the order in which they are called, and what is wrong with other files.

    containerd does not start when one file has an invalid name. Here that file is ignored and logged: a stray file must
    not stop a whole node, and an operator who needs a plugin lists it in required_plugins, which fails closed whatever
    the cause of its absence is. A missing directory counts as empty, as in containerd.
    """
    plugins, problems = [], []
    try:
        files = sorted(directory.iterdir())
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{directory}: {error.strerror}"]
    for path in files:
        try:
            plugins.append(PreinstalledPlugin(_identity(path), path))
        except BadName as error:
            problems.append(f"{path}: {error}")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    return sorted(plugins, key=lambda plugin: plugin.id), problems


def _identity(path: Path) -> PluginId:
    """Raises BadName, OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise BadName("is not a regular file")
    plugin = from_file(path.name)
    if not os.access(path, os.X_OK):
        raise BadName("is not executable")
    with path.open("rb") as file:
        if file.read(len(_WASM)) == _WASM:
            raise BadName("WebAssembly plugins are not supported")
    return plugin


def read_configuration(plugin: PluginId, directory: Path | None) -> str:
    """Returns NN-NAME.conf or else NAME.conf, unchanged; empty without either. Raises OSError, UnicodeError."""
    if directory is None:
        return ""
    for name in (f"{plugin}.conf", f"{plugin.name}.conf"):
        try:
            return (directory / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
    return ""


@asynccontextmanager
async def launch(plugin: PreinstalledPlugin, connection: MuxConnection) -> AsyncIterator[int]:
    """Starts the process, and attaches the connection to it; yields the pid. Raises OSError.

    When left, the process is killed with its process group, and reaped.
    """
    ours, theirs = socket.socketpair()
    with theirs, ExitStack() as undo:
        undo.callback(ours.close)
        child = _spawn(plugin, theirs)
        undo.pop_all()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def on_exit() -> None:
        loop.remove_reader(child.pidfd)
        ended.set()
        connection.abort("its process has ended")

    loop.add_reader(child.pidfd, on_exit)
    log.info("started pre-installed plugin", extra={"plugin": str(plugin.id), "pid": child.pid})
    try:
        await over_socket(ours, connection)
        yield child.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await ended.wait()
        code = processes.reap(child)
        os.close(child.pidfd)
        level = (
            logging.INFO if code == -signal.SIGKILL else logging.WARNING
        )  # SIGKILL was ours, and its cause is logged
        log.log(level, "pre-installed plugin has exited", extra={"plugin": str(plugin.id), "code": code})


def _spawn(plugin: PreinstalledPlugin, theirs: socket.socket) -> processes.Child:
    """With exactly the three variables that NRI defines; its output goes to the runtime's stderr."""
    env = {
        "NRI_PLUGIN_NAME": plugin.id.name,
        "NRI_PLUGIN_IDX": plugin.id.index,
        "NRI_PLUGIN_SOCKET": str(SOCKET_DESCRIPTOR),
    }
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return processes.spawn([str(plugin.path)], env=env, files=(null, 2, 2, theirs.fileno()))
    finally:
        os.close(null)

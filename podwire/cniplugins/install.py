"""Installs the plugins' executables into a directory.

Each name gets the compiled forwarder, which sends its call to the daemon or to a helper, and one settings file
(`.podwire-cni`) says where they listen. Without a compiler at build time they are scripts that run a plugin in their
own process. On a host whose daemon is a pod, there is no interpreter to fall back to: `daemon_only`.
"""

import os
import stat
import sys

from podwire.cniplugins.ipam_delegate import SIGNATURE, is_ours
from podwire.cniplugins.skeleton import PLUGINS
from podwire.durable.files import remove_durably, write_durably
from podwire.shim import find_forwarder

_PROGRAM = """\
#!{python} -IS
{mark}: {name}
import sys

sys.path.append({path!r})
from podwire.cniplugins.skeleton import main

main({name!r})
"""
_LEASING_PROGRAM = """\
#!{python} -IS
{mark}: {name}
import os, sys

if sys.argv[1:2] == ["daemon"] and "CNI_COMMAND" not in os.environ:
    os.execv({leasing[0]!r}, [*{leasing!r}, *sys.argv[2:]])
sys.path.append({path!r})
from podwire.cniplugins.skeleton import main

main({name!r})
"""
"""The plugin dhcp: units of systemd that were made for the reference plugin run `dhcp daemon`."""
_LONGEST_LINE = 127  # of a `#!` line, on every kernel
SOCKET = "/run/podwire/cni.sock"
NOTE = ".podwire-cni"
HELPERS = "cni-helpers"
"""Name of the directory of helpers, beside the socket of the daemon."""
IDLE = 60.0
"""Seconds without a call after which a helper ends."""
_CODE = "import sys; sys.path.append(sys.argv[1]); from podwire.cniplugins.skeleton import main; main(sys.argv[2])"
_SERVE = (
    "import sys; sys.path.append(sys.argv[1]); from podwire.cniplugins.daemon.helper import main; main(sys.argv[2:])"
)


class Foreign(Exception):
    """The directory has executables of these names that are not podwire's."""


def script(name: str) -> bytes:
    """Returns a plugin as a script. `-I` ignores the environment, `-S` skips the search for site packages."""
    python = _python()
    if len(python) > _LONGEST_LINE - len(" -IS") or " " in python:
        raise ValueError(f"the path of the interpreter cannot be in a #! line: {python}")
    program = _LEASING_PROGRAM if name == "dhcp" else _PROGRAM
    words = {"python": python, "mark": SIGNATURE.decode(), "name": name, "path": _home(), "leasing": _leasing()}
    return program.format_map(words).encode()


class WithoutForwarder(Exception):
    """The compiled forwarder is missing, and only it can call a daemon."""


class OtherDaemon(Exception):
    """The executables in a directory call another daemon: another installation owns them."""


def note(socket: str, helpers: str | None = None, idle: float = IDLE, *, daemon_only: bool = False) -> bytes:
    """Returns the forwarder's settings: the daemon's socket, and the command that does the work without a daemon.

    With a directory of `helpers`, a call without a daemon starts a helper there, which serves the following calls.
    With `daemon_only` there is no such command: a call without a daemon fails, and the runtime retries it.
    """
    lines = [f"socket {socket}"]
    if not daemon_only:
        lines += [f"run {word}" for word in (_python(), "-IS", "-c", _CODE, _home())]
    if helpers is not None and not daemon_only:
        lines += [f"helper {helpers}"]
        lines += [f"serve {word}" for word in (_python(), "-IS", "-c", _SERVE, _home(), f"{idle:g}")]
    if not daemon_only:
        lines += [f"leasing {word}" for word in _leasing()]
    if any("\n" in line for line in lines):
        raise ValueError(f"a path must not contain a newline: {lines}")
    return "".join(f"{line}\n" for line in lines).encode()


def _leasing() -> list[str]:
    """Returns the command of the daemon of dhcp. It needs packages: those of this interpreter, with its environment."""
    return [os.path.abspath(sys.executable), "-P", "-m", "podwire.cli.main", "cni", "dhcp-daemon"]


def _python() -> str:
    return os.path.realpath(sys.executable)


def _home() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def install(
    directory: str,
    *,
    force: bool = False,
    socket: str = SOCKET,
    helpers: str | None = None,
    idle: float = IDLE,
    daemon_only: bool = False,
) -> list[str]:
    """Installs all executables, each atomically; returns their paths. Raises Foreign before it changes anything.

    Without `helpers`, the directory of their sockets, each call without a daemon starts an interpreter; with
    `daemon_only` it fails. Raises WithoutForwarder.
    """
    paths = {name: os.path.join(directory, name) for name in PLUGINS}
    foreign = [path for path in paths.values() if not force and not _is_replaceable(path)]
    if foreign:
        raise Foreign(", ".join(foreign))
    forwarder = find_forwarder()
    compiled = None if forwarder is None else forwarder.read_bytes()
    if compiled is None and daemon_only:
        raise WithoutForwarder("podwire-cni is missing: podwire was installed without a C compiler")
    os.makedirs(directory, mode=0o755, exist_ok=True)
    if compiled is not None:
        text = note(socket, helpers, idle, daemon_only=daemon_only)
        write_durably(os.path.join(directory, NOTE), text, mode=0o644)
    for name, path in paths.items():
        text = script(name) if compiled is None else compiled + SIGNATURE + f": {name}\n".encode()
        write_durably(path, text, mode=0o755)
    return list(paths.values())


def uninstall(directory: str, *, socket: str = SOCKET) -> list[str]:
    """Removes our executables and their settings file; returns the removed paths. Can be repeated.

    Executables of others stay. Raises OtherDaemon where ours were installed for a daemon at another socket.
    """
    settings = os.path.join(directory, NOTE)
    try:
        with open(settings, encoding="utf-8") as file:
            installed = file.readline().rstrip("\n").removeprefix("socket ")
    except FileNotFoundError:
        installed = socket
    if installed != socket:
        raise OtherDaemon(f"{settings}: these plugins belong to the daemon at {installed}")
    paths = [os.path.join(directory, name) for name in PLUGINS]
    ours = [path for path in paths if os.path.lexists(path) and _is_replaceable(path)]
    removed = [*ours, *([settings] if os.path.lexists(settings) else [])]
    for path in removed:
        remove_durably(path)
    return removed


def _is_replaceable(path: str) -> bool:
    """Whether a path is free or has an executable of ours."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and is_ours(path)
    except FileNotFoundError:
        return True

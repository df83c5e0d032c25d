"""Puts the plugins' programs into a directory.

Under each name the compiled one that hands its call to the daemon, with a note beside them; or, where there was no
compiler, small scripts that name their interpreter and find this package.
"""

import os
import stat
import sys

from podwire.cniplugins.ipam_delegate import MARK, is_marked
from podwire.cniplugins.skeleton import PLUGINS
from podwire.durable.files import write_durably
from podwire.shim import find_forwarder

_PROGRAM = """\
#!{python} -IS
{mark}: {name}
import sys

sys.path.append({path!r})
from podwire.cniplugins.skeleton import main

main({name!r})
"""
_LONGEST_LINE = 127  # what every kernel takes after `#!`
SOCKET = "/run/podwire/cni.sock"
NOTE = ".podwire-cni"
_CODE = "import sys; sys.path.append(sys.argv[1]); from podwire.cniplugins.skeleton import main; main(sys.argv[2])"


class Foreign(Exception):
    """Programs that somebody else put there."""


def script(name: str) -> bytes:
    """A plugin as a script. `-I`: nothing from the environment; `-S`: no search for other packages."""
    python = _python()
    if len(python) > _LONGEST_LINE - len(" -IS") or " " in python:
        raise ValueError(f"the interpreter's path cannot be told to the kernel: {python}")
    return _PROGRAM.format(python=python, mark=MARK.decode(), name=name, path=_home()).encode()


def note(socket: str) -> bytes:
    """For the compiled program: where the daemon listens, and what does its work without one."""
    lines = [f"socket {socket}", *(f"run {each}" for each in (_python(), "-IS", "-c", _CODE, _home()))]
    if any("\n" in each for each in lines):
        raise ValueError(f"a path has more than one line: {lines}")
    return "".join(f"{each}\n" for each in lines).encode()


def _python() -> str:
    return os.path.realpath(sys.executable)


def _home() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def install(directory: str, *, force: bool = False, socket: str = SOCKET) -> list[str]:
    """Put all in place, each at once; the paths. Refuses to replace what is not ours, and then changes nothing."""
    paths = {name: os.path.join(directory, name) for name in PLUGINS}
    foreign = [each for each in paths.values() if not force and not _is_ours(each)]
    if foreign:
        raise Foreign(", ".join(foreign))
    os.makedirs(directory, mode=0o755, exist_ok=True)
    forwarder = find_forwarder()
    compiled = None if forwarder is None else forwarder.read_bytes()
    if compiled is not None:
        write_durably(os.path.join(directory, NOTE), note(socket), mode=0o644)
    for name, path in paths.items():
        text = script(name) if compiled is None else compiled + MARK + f": {name}\n".encode()
        write_durably(path, text, mode=0o755)
    return list(paths.values())


def _is_ours(path: str) -> bool:
    """Also what is not there."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode) and is_marked(path)
    except FileNotFoundError:
        return True

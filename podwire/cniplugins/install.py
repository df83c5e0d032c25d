"""Puts the plugins' programs into a directory: small scripts that name their interpreter and find this package."""

import os
import stat
import sys

from podwire.cniplugins.delegate import MARK
from podwire.cniplugins.skeleton import PLUGINS
from podwire.linux.files import write_durably

_PROGRAM = """\
#!{python} -IS
{mark}: {name}
import sys

sys.path.append({path!r})
from podwire.cniplugins.skeleton import main

main({name!r})
"""
_LONGEST_LINE = 127  # what every kernel takes after `#!`


class Foreign(Exception):
    """Programs that somebody else put there."""


def program(name: str) -> bytes:
    """The text of a plugin's program. `-I`: nothing from the environment; `-S`: no search for other packages."""
    python = os.path.realpath(sys.executable)
    if len(python) > _LONGEST_LINE - len(" -IS") or " " in python:
        raise ValueError(f"the interpreter's path cannot be told to the kernel: {python}")
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return _PROGRAM.format(python=python, mark=MARK.decode(), name=name, path=home).encode()


def install(directory: str, *, force: bool = False) -> list[str]:
    """Put all in place, each at once; the paths. Refuses to replace what is not ours, and then changes nothing."""
    paths = {name: os.path.join(directory, name) for name in PLUGINS}
    foreign = [each for each in paths.values() if not force and not _is_ours(each)]
    if foreign:
        raise Foreign(", ".join(foreign))
    os.makedirs(directory, mode=0o755, exist_ok=True)
    for name, path in paths.items():
        write_durably(path, program(name), mode=0o755)
    return list(paths.values())


def _is_ours(path: str) -> bool:
    """Also what is not there."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return MARK in file.read(256)
    except FileNotFoundError:
        return True

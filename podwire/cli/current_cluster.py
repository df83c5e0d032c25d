"""The current cluster of a user, which `podwire use` chooses: its name, in a file of the user's configuration.

With sudo, the user is the one who called sudo. The file holds a name and never a path: root reads what another user
wrote, and must not be led elsewhere.
"""

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from podwire.durable.files import replace_file

LONGEST = 100
"""Bytes of the file that are read."""


class Caller(NamedTuple):
    """The user who typed the command."""

    uid: int
    gid: int


def sudo_caller() -> Caller | None:
    """Returns the user who called sudo; None for a command that runs as the user who typed it."""
    uid, gid = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not uid.isdecimal() or not gid.isdecimal() or int(uid) == 0:
        return None
    return Caller(int(uid), int(gid))


def path() -> Path:
    """Returns the file of the calling user."""
    caller = sudo_caller()
    if caller is not None:
        try:
            return Path(pwd.getpwuid(caller.uid).pw_dir, ".config/podwire/cluster")
        except KeyError:  # a user without an entry has no home of their own
            pass
    directory = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "/root", ".config")  # noqa: PTH118 - either may be relative
    return Path(directory, "podwire/cluster")


def read() -> str:
    """Returns the name of the current cluster; empty without one. Raises OSError."""
    try:
        descriptor = os.open(path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    try:
        return os.read(descriptor, LONGEST).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)


def write(name: str) -> None:
    """Saves the name as the calling user, whose directories they are; an empty name removes it. Raises OSError."""
    with _as_caller():
        if not name:
            path().unlink(missing_ok=True)
            return
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path(), f"{name}\n".encode())


@contextlib.contextmanager
def _as_caller() -> Iterator[None]:
    """Takes the rights of the user who called sudo, for as long as the context is open."""
    caller = sudo_caller()
    if caller is None:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(caller.gid)
    os.seteuid(caller.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)

"""Directories that only this user can change: for state that is read, executed and removed with all its rights.

A directory is trusted when nobody else can replace it, or anything on the way to it:

| part of the path                 | must                                                                         |
|----------------------------------|------------------------------------------------------------------------------|
| `/` and every directory above    | belong to root or to this user; be sticky if others may write to it          |
| the directory itself             | belong to root or to this user; be writable by neither its group nor others  |
| a symlink                        | belong to root or to this user; none is followed below a directory of ours   |

Root trusts root alone. What does not exist yet is created by us, with a mode that does not depend on the umask. Once
checked, the path cannot change under us, because each of its directories is closed to others. It is opened
with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS) all the same, so that a mistake here ends with an error.

CNI plugins import this, and live for milliseconds: no pathlib, no pwd at import.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from podwire.linux import errors
from podwire.linux.fs.paths import open_beneath
from podwire.linux.fs.regular_files import opened_regular, read_at
from podwire.linux.values import Path

_PATH = os.O_PATH | os.O_DIRECTORY
_MOST_LINKS = 40
_ALL_IDS = ["0", "0", "4294967295"]


def check_directory(path: Path, *, no_links_below: Path | None = None) -> str:
    """Returns the path without symlinks; its last parts need not exist. Raises UntrustedPath, OSError.

    `no_links_below` is a directory of ours: below it, directories are directories and not links.
    """
    resolved, status = _resolve(path, no_links_below)
    if status is not None and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"is writable by others than its owner (mode {stat.S_IMODE(status.st_mode):04o})"
        remedy = f"look at what is in it, then `chmod go-w {resolved}`, or choose another directory"
        raise errors.UntrustedPath(resolved, problem, remedy)
    return resolved


@lru_cache(64)
def check_once(path: str) -> None:
    """Like `check_directory`, once in a process: what was trusted stays so, because only this user can change it."""
    check_directory(path)


def _resolve(path: Path, no_links_below: Path | None) -> tuple[str, os.stat_result | None]:
    """Returns the path without symlinks, and its status if it exists. Everything above it is checked."""
    ours = "" if no_links_below is None else os.path.join(os.path.abspath(no_links_below), "")
    trusted = {0, os.geteuid()} | _unknown_owners()
    given = os.fspath(path)
    pending = _parts(given if given.startswith("/") else os.path.join(os.getcwd(), given))
    at, followed = "/", 0
    status = os.lstat(at)
    _check_owner(at, status, trusted)
    while pending:
        _check_above(at, status)
        name = pending.pop()
        inner = os.path.dirname(at) if name == ".." else os.path.join(at, name)
        try:
            status = os.lstat(inner)
        except FileNotFoundError:
            return os.path.normpath(os.path.join(inner, *reversed(pending))), None
        _check_owner(inner, status, trusted)
        if stat.S_ISLNK(status.st_mode):
            followed += 1
            if ours and inner.startswith(ours):
                remedy = "remove it, or choose another directory"
                raise errors.UntrustedPath(inner, "is a symlink where a directory belongs", remedy)
            if followed > _MOST_LINKS:
                raise errors.PathEscapes(errno.ELOOP, f"open {given}")
            target = os.readlink(inner)
            pending += _parts(target)
            at = "/" if target.startswith("/") else at
            status = os.lstat(at)
        elif not stat.S_ISDIR(status.st_mode):
            raise errors.WrongKind(errno.ENOTDIR, inner)
        else:
            at = inner
    return at, status


def make_directory(path: Path, mode: int = 0o755, *, no_links_below: Path | None = None) -> str:
    """Creates a directory and its missing parents (0755), and returns it without symlinks. UntrustedPath, OSError."""
    resolved = check_directory(path, no_links_below=no_links_below)
    if os.path.isdir(resolved):
        return resolved
    at = os.open("/", _PATH | os.O_CLOEXEC)
    try:
        names = list(reversed(_parts(resolved)))
        for number, name in enumerate(names, 1):
            try:
                inner = open_beneath(at, name, _PATH, symlinks=False)
            except errors.NoSuchPath:
                try:
                    os.mkdir(name, 0o700, dir_fd=at)
                except FileExistsError:  # created meanwhile, by another process of ours
                    inner = open_beneath(at, name, _PATH, symlinks=False)
                except OSError as error:  # name the whole path, not the part that the directory above was asked for
                    error.filename = os.path.join("/", *names[:number])
                    raise
                else:
                    inner = open_beneath(at, name, _PATH, symlinks=False)
                    os.chmod(name, mode if number == len(names) else 0o755, dir_fd=at)  # whatever the umask is
            os.close(at)
            at = inner
    finally:
        os.close(at)
    return resolved


@contextmanager
def opened_parent(path: Path, *, no_links_below: Path | None = None) -> Iterator[tuple[int, str] | None]:
    """Gives the open parent of a path and the last name, for calls with `dir_fd`; None without such a directory.

    The parent is opened without following links, as `check_directory` found it. Raises UntrustedPath, OSError.
    """
    directory, name = os.path.split(os.fspath(path))
    resolved, status = _resolve(directory, no_links_below)
    if status is not None:
        _check_above(resolved, status)
    root = os.open("/", _PATH | os.O_CLOEXEC)
    try:
        parent = open_beneath(root, resolved.lstrip("/") or ".", _PATH, symlinks=False)
    except errors.NoSuchPath:
        yield None
        return
    finally:
        os.close(root)
    try:
        yield parent, name
    finally:
        os.close(parent)


def check_files(directory: Path) -> None:
    """Checks the files of a directory that are executed, or parsed by programs that are. Raises UntrustedPath."""
    trusted = {0, os.geteuid()} | _unknown_owners()
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        status = entry.stat(follow_symlinks=False)
        _check_owner(entry.path, status, trusted)
        if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
            raise errors.UntrustedPath(
                entry.path, "is writable by everybody", f"look at it, then `chmod o-w {entry.path}`"
            )


def read_trusted(path: Path, most: int) -> bytes:
    """Reads at most `most` bytes of a regular file that only root or this user can change. UntrustedPath, OSError.

    The same holds for symlinks on the way, and for the directories of each and of the file.
    """
    trusted = {0, os.geteuid()} | _unknown_owners()
    at = os.fspath(path)
    for _ in range(_MOST_LINKS):
        directory, name = os.path.split(at)
        at = os.path.join(check_directory(directory), name)
        status = os.lstat(at)
        if not stat.S_ISLNK(status.st_mode):
            break
        _check_owner(at, status, trusted)
        at = os.path.join(os.path.dirname(at), os.readlink(at))
    with opened_regular(at) as descriptor:
        status = os.fstat(descriptor)
        _check_owner(at, status, trusted)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            problem = f"is writable by others than its owner (mode {stat.S_IMODE(status.st_mode):04o})"
            raise errors.UntrustedPath(at, problem, f"look at what is in it, then `chmod go-w {at}`")
        return read_at(descriptor, 0, most)


def _check_owner(path: str, status: os.stat_result, trusted: set[int]) -> None:
    if status.st_uid not in trusted:
        problem = f"belongs to {_name(status.st_uid)}, who could change what is done there as {_name(os.geteuid())}"
        remedy = f"choose a directory of your own, or look at what is in it and `chown {_name(os.geteuid())} {path}`"
        raise errors.UntrustedPath(path, problem, remedy)


def _check_above(path: str, status: os.stat_result) -> None:
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        problem = f"is writable by everybody and not sticky (mode {stat.S_IMODE(status.st_mode):04o})"
        raise errors.UntrustedPath(
            path, problem, "everybody could replace what is below it; choose a directory elsewhere"
        )


@lru_cache(1)
def _unknown_owners() -> frozenset[int]:
    """In a user namespace that does not map the host's root, the host's directories belong to the overflow uid."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            if file.read().split() == _ALL_IDS:
                return frozenset()
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return frozenset({int(file.read())})
    except (OSError, ValueError):
        return frozenset()


def _name(uid: int) -> str:
    import pwd  # noqa: PLC0415 - for messages only

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _parts(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]

"""Snapshot and restore of a link's sysctls, which the kernel resets when the link moves."""

import os
from collections.abc import Mapping
from contextlib import suppress

from podwire.linux import errors
from podwire.linux.net.links import checked_name

_ROOT = "/proc/sys/net"
_FAMILIES = ("ipv4", "ipv6")
_ROOM = 256
_NOT_SAVED = frozenset(("mc_forwarding", "stable_secret"))  # set by a multicast routing daemon; a secret


def read_all(link: str) -> dict[str, str]:
    """Returns the sysctls of a link of the calling thread's namespace, as `ipv4/arp_ignore`. Raises NoSuchLink."""
    found: dict[str, str] = {}
    for family in _FAMILIES:
        directory = f"{_ROOT}/{family}/conf/{checked_name(link)}"
        with suppress(FileNotFoundError):  # a kernel without IPv6, a link that has no such addresses
            found |= {f"{family}/{name}": value for name, value in _read(directory)}
    return found


def _read(directory: str) -> list[tuple[str, str]]:
    found = []
    there = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # resolves the path once, not 50 times
    try:
        for name in os.listdir(there):
            if name not in _NOT_SAVED:
                with suppress(OSError):  # a value that cannot be read cannot be restored
                    found.append((name, _value(name, there)))
    finally:
        os.close(there)
    return found


def _value(name: str, directory: int) -> str:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(file, _ROOM).decode().strip()
    finally:
        os.close(file)


def write(link: str, values: Mapping[str, str]) -> None:
    """Writes sysctls of a link of the calling thread's namespace. Raises NoSuchSysctl, Refused."""
    for name, value in values.items():
        family, _, parameter = name.partition("/")
        path = f"{_ROOT}/{family}/conf/{checked_name(link)}/{parameter}"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.write(file, value.encode())
            finally:
                os.close(file)
        except FileNotFoundError as error:
            raise errors.NoSuchSysctl(error.errno or 0, f"write {value} to {path}") from error
        except OSError as error:
            raise errors.from_oserror(error, f"write {value} to {path}") from error


def restore(link: str, wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Writes the values that differ; returns an error message for each that could not be written."""
    now, failed = read_all(link), []
    for name, value in wanted.items():
        if now.get(name) != value:
            try:
                write(link, {name: value})
            except errors.LinuxError as error:
                failed.append(str(error))
    return tuple(failed)

"""Kernel errors, named after what is wrong.

LinuxError                   an OSError: `errno`, and `operation`, what was tried
├── Exists                   the object already exists
│   ├── LinkExists, AddressExists, RouteExists, RuleExists, NeighbourExists
│   ├── QdiscExists
│   ├── ElementExists        an nft element, or one with the same key and other data
│   └── NamespaceExists
├── Missing                  the object does not exist
│   ├── NoSuchLink, NoSuchAddress, NoSuchRoute, NoSuchRule, NoSuchNeighbour
│   ├── NoSuchQdisc          none, or not ours
│   ├── NoSuchTable, NoSuchSet, NoSuchElement
│   ├── NoSuchNamespace      no such path, or nothing pinned at it (a plain file)
│   ├── NoSuchMount, NoSuchCgroup, NoSuchProcess, NoSuchSysctl
│   └── NoSuchPath
├── Unreachable              a route's gateway cannot be reached, or its link is down
├── Busy                     in use, or changing while it is read; trying again may help
├── NotPermitted             a capability is missing
├── Unsupported              this kernel does not have it
├── OutOfResources                   no memory, no disk, no quota
├── WrongKind                it is something else (a namespace of another type, not a namespace)
├── PathEscapes                  a path leads out of where it must stay
├── UntrustedPath            another user could change what is at a path; says who, and what helps
├── DeadlinePassed           a program or the kernel did not answer in time
├── TooMuchOutput            a program wrote more than it may
├── BadRuleset               nft rejects the ruleset; has its message
└── Refused                  any other error; the kernel's message is in the text
"""

import errno
import os
from collections.abc import Mapping
from typing import Any


class LinuxError(OSError):
    """The kernel, or a program such as nft, rejected an operation."""

    errno: int

    def __init__(self, number: int, operation: str, detail: str = "") -> None:
        super().__init__(number, os.strerror(number))
        self.operation = operation
        self.detail = detail

    def __str__(self) -> str:
        reason = os.strerror(self.errno)
        return f"{self.operation}: {reason}" + (f" ({self.detail})" if self.detail else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errno, self.operation, self.detail)


class Exists(LinuxError):
    pass


class LinkExists(Exists):
    pass


class AddressExists(Exists):
    pass


class RouteExists(Exists):
    pass


class RuleExists(Exists):
    pass


class NeighbourExists(Exists):
    pass


class QdiscExists(Exists):
    pass


class ElementExists(Exists):
    pass


class NamespaceExists(Exists):
    pass


class Missing(LinuxError):
    pass


class NoSuchLink(Missing):
    pass


class NoSuchAddress(Missing):
    pass


class NoSuchRoute(Missing):
    pass


class NoSuchRule(Missing):
    pass


class NoSuchNeighbour(Missing):
    pass


class NoSuchQdisc(Missing):
    pass


class NoSuchTable(Missing):
    pass


class NoSuchSet(Missing):
    pass


class NoSuchElement(Missing):
    pass


class NoSuchNamespace(Missing):
    pass


class NoSuchMount(Missing):
    pass


class NoSuchCgroup(Missing):
    pass


class NoSuchProcess(Missing):
    pass


class NoSuchSysctl(Missing):
    pass


class NoSuchPath(Missing):
    pass


class Unreachable(LinuxError):
    pass


class Busy(LinuxError):
    pass


class NotPermitted(LinuxError):
    pass


class Unsupported(LinuxError):
    pass


class OutOfResources(LinuxError):
    pass


class WrongKind(LinuxError):
    pass


class PathEscapes(LinuxError):
    pass


class UntrustedPath(LinuxError):
    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(errno.EPERM, path, problem)
        self.path, self.problem, self.remedy = path, problem, remedy

    def __str__(self) -> str:
        return f"{self.path} {self.problem}: {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.problem, self.remedy)


class DeadlinePassed(LinuxError):
    pass


class TooMuchOutput(LinuxError):
    pass


class BadRuleset(LinuxError):
    pass


class Refused(LinuxError):
    pass


Names = Mapping[int, type[LinuxError]]
"""Maps an errno to an error class, for one kind of operation."""

GENERAL: Names = {
    errno.EPERM: NotPermitted,
    errno.EACCES: NotPermitted,
    errno.EROFS: NotPermitted,
    errno.EBUSY: Busy,
    errno.EAGAIN: Busy,
    errno.EINTR: Busy,
    errno.ETXTBSY: Busy,
    errno.EEXIST: Exists,
    errno.ENOENT: Missing,
    errno.ENODEV: Missing,
    errno.ESRCH: Missing,
    errno.ENETUNREACH: Unreachable,
    errno.EHOSTUNREACH: Unreachable,
    errno.ENETDOWN: Unreachable,
    errno.EOPNOTSUPP: Unsupported,
    errno.EAFNOSUPPORT: Unsupported,
    errno.EPROTONOSUPPORT: Unsupported,
    errno.ENOSYS: Unsupported,
    errno.ENOMEM: OutOfResources,
    errno.ENOBUFS: OutOfResources,
    errno.ENOSPC: OutOfResources,
    errno.EDQUOT: OutOfResources,
    errno.EMFILE: OutOfResources,
    errno.ENFILE: OutOfResources,
    errno.EXDEV: PathEscapes,
    errno.ETIMEDOUT: DeadlinePassed,
}


def from_errno(number: int, operation: str, detail: str = "", names: Names | None = None) -> LinuxError:
    """Returns the error for an errno: by `names`, else by GENERAL, else `Refused`."""
    kind = (names or {}).get(number) or GENERAL.get(number, Refused)
    return kind(number, operation, detail)


def from_oserror(error: OSError, operation: str, names: Names | None = None) -> LinuxError:
    """Returns the error for an OSError; a LinuxError is returned unchanged."""
    if isinstance(error, LinuxError):
        return error
    return from_errno(error.errno or errno.EIO, operation, "" if error.filename is None else str(error.filename), names)

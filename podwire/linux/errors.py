"""What the kernel says no with, named for what is wrong rather than for how it was noticed.

LinuxError                   an OSError: `errno`, and `operation`, what was tried, in words
├── Exists                   what should be made is there already
│   ├── LinkExists, AddressExists, RouteExists, RuleExists, NeighbourExists
│   ├── QdiscExists
│   ├── ElementExists        an nft element, or one with the same key and other data
│   └── NamespaceExists
├── Missing                  what should be used is not there
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
├── WrongKind                it is there and is something else (a namespace of another type, not a namespace)
├── PathEscapes                  a path leads out of where it must stay
├── DeadlinePassed           a program or the kernel did not answer in time
├── TooMuchOutput            a program wrote more than it may
├── BadRuleset               nft does not take this text; carries what it said
└── Refused                  any other no; the kernel's own words are in the text
"""

import errno
import os
from collections.abc import Mapping


class LinuxError(OSError):
    """The kernel, or a program run on its behalf, said no to an operation."""

    errno: int

    def __init__(self, number: int, operation: str, detail: str = "") -> None:
        super().__init__(number, os.strerror(number))
        self.operation = operation
        self.detail = detail

    def __str__(self) -> str:
        reason = os.strerror(self.errno)
        return f"{self.operation}: {reason}" + (f" ({self.detail})" if self.detail else "")

    def __reduce__(self) -> tuple[type["LinuxError"], tuple[int, str, str]]:
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


class DeadlinePassed(LinuxError):
    pass


class TooMuchOutput(LinuxError):
    pass


class BadRuleset(LinuxError):
    pass


class Refused(LinuxError):
    pass


Names = Mapping[int, type[LinuxError]]
"""What an errno means for one kind of operation."""

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
    """The error for an errno: as this kind of operation names it, else as all do, else `Refused`."""
    kind = (names or {}).get(number) or GENERAL.get(number, Refused)
    return kind(number, operation, detail)


def from_oserror(error: OSError, operation: str, names: Names | None = None) -> LinuxError:
    """The same for an error that Python raised; one that has its name already keeps it."""
    if isinstance(error, LinuxError):
        return error
    return from_errno(error.errno or errno.EIO, operation, "" if error.filename is None else str(error.filename), names)

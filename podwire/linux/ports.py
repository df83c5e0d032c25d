"""What a room can be handed of the kernel. `kernel.py` has all of it for real, `memory/` in a process's own memory.

Errors are those of `errors.py`; each implementation says which.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from podwire.linux.values import (
    IP,
    MAIN,
    Address,
    Bucket,
    Change,
    Element,
    Interface,
    Limits,
    Link,
    Mounted,
    Neighbour,
    NewLink,
    Path,
    Pinned,
    Route,
    Rule,
    Usage,
)


class Links(Protocol):
    """The links of one network namespace, named by index or by name."""

    def list(self) -> list[Link]: ...

    def get(self, link: int | str) -> Link: ...

    def add(self, new: NewLink) -> None: ...

    def change(
        self,
        link: int | str,
        *,
        up: bool | None = None,
        name: str | None = None,
        mtu: int | None = None,
        mac: str | None = None,
        alias: str | None = None,
        master: int | None = None,
        promiscuous: bool | None = None,
        all_multicast: bool | None = None,
        queue: int | None = None,
    ) -> None: ...

    def set_port(self, link: int, *, hairpin: bool | None = None, isolated: bool | None = None) -> None: ...

    def move(self, link: int | str, netns: Path, name: str | None = None) -> None: ...

    def delete(self, link: int | str) -> None: ...


class Addresses(Protocol):
    def add(self, index: int, interface: Interface, *, dad: bool = False, prefix_route: bool = True) -> None: ...

    def delete(self, index: int, interface: Interface) -> None: ...

    def list(self, index: int | None = None) -> list[Address]: ...


class Routes(Protocol):
    def add(self, route: Route) -> None: ...

    def replace(self, route: Route) -> None: ...

    def delete(self, route: Route) -> None: ...

    def list(self, family: int, table: int | None = MAIN) -> list[Route]: ...


class Rules(Protocol):
    def add(self, rule: Rule) -> None: ...

    def delete(self, rule: Rule) -> None: ...

    def list(self, family: int) -> list[Rule]: ...


class Neighbours(Protocol):
    def add(self, neighbour: Neighbour) -> None: ...

    def replace(self, neighbour: Neighbour) -> None: ...

    def delete(self, index: int, address: IP) -> None: ...

    def list(self, index: int | None = None) -> list[Neighbour]: ...


class Traffic(Protocol):
    """How fast packets pass links, which are named by index."""

    def shape(self, index: int, bucket: Bucket) -> None: ...

    def shaped(self, index: int) -> Bucket | None: ...

    def unshape(self, index: int) -> None: ...

    def redirect(self, index: int, to: int) -> None: ...

    def hooked(self, index: int) -> bool: ...

    def redirected(self, index: int) -> int: ...

    def unredirect(self, index: int) -> None: ...


class Parts(Protocol):
    """What a network namespace consists of."""

    @property
    def links(self) -> Links: ...

    @property
    def addresses(self) -> Addresses: ...

    @property
    def routes(self) -> Routes: ...

    @property
    def rules(self) -> Rules: ...

    @property
    def neighbours(self) -> Neighbours: ...

    @property
    def traffic(self) -> Traffic: ...


class Network(Parts, Protocol):
    """An open network namespace; it lives at least until it is closed."""

    def batch(self) -> AbstractContextManager[Parts]:
        """Changes told to the parts that it gives are made together when the block ends; the first error is raised."""
        ...

    def close(self) -> None: ...


class Namespaces(Protocol):
    """The namespaces of one kind that are pinned in one directory."""

    def path(self, name: str) -> str: ...

    def create(self, name: str) -> Pinned: ...

    def remove(self, name: str) -> None: ...

    def list(self) -> list[Pinned]: ...


class Elements(Protocol):
    """The elements of the sets and maps of one nft table."""

    def add(self, name: str, *elements: Element) -> None: ...

    def delete(self, name: str, *elements: Element) -> None: ...

    def change(self, *changes: Change) -> None: ...

    def list(self, name: str) -> list[Element]: ...

    def close(self) -> None: ...


class Ruleset(Protocol):
    def apply(self, ruleset: str) -> None: ...

    def delete_table(self, table: str) -> None: ...


class Mounts(Protocol):
    def mount(self, source: str, target: Path, kind: str, options: Sequence[str] = ()) -> None: ...

    def bind(self, source: Path, target: Path, *, recursive: bool = False, read_only: bool = False) -> None: ...

    def make_read_only(self, target: Path, *, recursive: bool = False) -> None: ...

    def set_propagation(self, target: Path, how: str) -> None: ...

    def unmount(self, target: Path, *, lazily: bool = False) -> None: ...

    def is_mounted(self, target: Path) -> bool: ...

    def list(self) -> list[Mounted]: ...


class Cgroups(Protocol):
    """Groups by their paths, the same in every tree."""

    def create(self, path: str) -> None: ...

    def limit(self, path: str, limits: Limits) -> None: ...

    def remove(self, path: str) -> None: ...

    def below(self, path: str) -> list[str]: ...


class CgroupProcesses(Protocol):
    """Who is in a group, and what they use."""

    def doors(self, path: str) -> list[str]: ...

    def enter(self, path: str, pid: int) -> None: ...

    def pids(self, path: str) -> list[int]: ...

    def usage(self, path: str) -> Usage: ...

    def kill(self, path: str, patience: float = 10.0) -> None: ...


class AllCgroups(Cgroups, CgroupProcesses, Protocol):
    pass


class Sysctls(Protocol):
    def read(self, name: str) -> str: ...

    def write(self, name: str, value: str) -> None: ...


class Conntrack(Protocol):
    def flush(self, address: IP) -> int: ...

    def close(self) -> None: ...


class Kernel(Protocol):
    """All of it; whoever composes a program takes from here what each room needs."""

    @property
    def mounts(self) -> Mounts: ...

    @property
    def cgroups(self) -> AllCgroups: ...

    def network(self, netns: Path | None = None) -> Network: ...

    def namespaces(self, directory: Path, kind: str = "net") -> Namespaces: ...

    def elements(self, netns: Path | None, table: str) -> Elements: ...

    def ruleset(self, netns: Path | None) -> Ruleset: ...

    def sysctls(self, netns: Path | None = None, ipc: Path | None = None) -> Sysctls: ...

    def conntrack(self, netns: Path | None = None) -> Conntrack: ...

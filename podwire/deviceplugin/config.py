"""Pools from a YAML file, read strictly: an unknown key must not silently give a pool other devices."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.protocols.settings import (
    BadConfig,
    Read,
    between,
    flag,
    link,
    list_of,
    mapped,
    matching,
    one_of,
    parsed,
)

DOMAIN = "net.podwire.dev"
MOST = 10_000
"""Devices of one pool."""
MOST_LINKS = 1_000
"""Links that one pool makes."""
KINDS = ("veth", "macvlan", "tap")
MODES = ("bridge", "private", "vepa")

_POOL = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,10}")
_PCI = re.compile(r"[0-9a-f*?]{1,8}(:[0-9a-f*?\[\]-]{1,8}){0,2}(\.[0-7*?\[\]-]{1,5})?")
_PERMISSIONS = re.compile(r"(?=.)r?w?m?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interfaces:
    """Links that the host has: those to which every list that is given has a match."""

    names: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    pci_addresses: tuple[str, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    carrier: bool = True
    """Whether one that is up and has no carrier is unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """Links that are made for pods: a veth or tap on a bridge, a macvlan on any link."""

    kind: str
    parent: str
    count: int
    prefix: str
    mtu: int = 0
    mode: str = "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Device files, all of them for each of `count` holders."""

    paths: tuple[str, ...]
    permissions: str = "rw"
    count: int = 1


Source = Interfaces | Make | Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    name: str
    source: Source
    cdi: bool = False
    """Whether devices are handed over by CDI: files by deviceNodes, links by netDevices."""

    @property
    def resource(self) -> str:
        return f"{DOMAIN}/{self.name}"


@dataclass(frozen=True, slots=True)
class Config:
    pools: tuple[Pool, ...]


def load(path: str | Path) -> Config:
    """Raises BadConfig, OSError."""
    return config(parsed(Path(path).read_bytes(), path))


def config(found: object) -> Config:
    """Raises BadConfig."""
    read = mapped("", found, {"pools": _list_of(_pool)})
    pools: tuple[Pool, ...] = read.get("pools", ())
    if not pools:
        raise BadConfig("pools", "at least one is needed")
    for key, reason in _clashes(pools):
        raise BadConfig(key, reason)
    return Config(pools)


def _clashes(pools: tuple[Pool, ...]) -> Iterator[tuple[str, str]]:
    """Yields what two pools both claim."""
    owners: dict[tuple[str, str], int] = {}
    for at, pool in enumerate(pools):
        for key, kind, value in _claims(pool):
            first = owners.setdefault((kind, value), at)
            if first != at:
                yield f"pools[{at}].{key}", f"{value} belongs to pools[{first}], {pools[first].name}, already"


def _claims(pool: Pool) -> Iterator[tuple[str, str, str]]:
    yield "name", "name", pool.name
    yield "name", "variable", variable(pool.name)
    if isinstance(pool.source, Make):
        for number in range(pool.source.count):
            yield "make.prefix", "link", f"{pool.source.prefix}{number}"
    if isinstance(pool.source, Files):
        for at, path in enumerate(pool.source.paths):
            yield f"files.paths[{at}]", "path", path


def variable(pool: str) -> str:
    """The environment variable that tells a container what it got of a pool."""
    return f"PODWIRE_DEVICE_{re.sub('[^A-Z0-9]', '_', pool.upper())}"


def _pool(key: str, found: object) -> Pool:
    read = mapped(key, found, {"name": _name, "cdi": flag, **_SOURCES}, required=("name",))
    given = [option for option in _SOURCES if option in read]
    if len(given) != 1:
        raise BadConfig(key, f"exactly one of {', '.join(_SOURCES)} is needed, not {len(given)}")
    source = read[given[0]]
    if given == ["make"]:
        source = _make(f"{key}.make", source, read["name"])
    return Pool(name=read["name"], source=source, cdi=read.get("cdi", False))


def _interfaces(key: str, found: object) -> Interfaces:
    renamed = {"pciAddresses": "pci_addresses", "numaNodes": "numa_nodes"}
    read = mapped(key, found, _INTERFACE_KEYS, renamed=renamed)
    if not read.keys() - {"carrier"}:
        selectors = ", ".join(name for name in _INTERFACE_KEYS if name != "carrier")
        raise BadConfig(key, f"one of {selectors} is needed: not every link of the host is for pods")
    return Interfaces(**read)


def _make_keys(key: str, found: object) -> dict[str, Any]:
    return mapped(key, found, _MAKE_KEYS, required=("kind", "parent", "count"))


def _make(key: str, read: dict[str, Any], pool: str) -> Make:
    if "mode" in read and read["kind"] != "macvlan":
        raise BadConfig(f"{key}.mode", f"a {read['kind']} has none")
    prefix = read.pop("prefix", pool)
    if not _PREFIX.fullmatch(prefix):
        raise BadConfig(
            f"{key}.prefix",
            f"{prefix!r} begins no name of a link: a letter and up to 10 letters, digits, '_', '.', '-'",
        )
    made = Make(prefix=prefix, **read)
    if len(f"{prefix}{made.count - 1}-h") > 15:
        raise BadConfig(f"{key}.prefix", f"{prefix}{made.count - 1} is too long for a link: 13 characters at most")
    return made


def _files(key: str, found: object) -> Files:
    read = mapped(key, found, _FILES_KEYS)
    if not read.get("paths"):
        raise BadConfig(f"{key}.paths", "at least one is needed")
    return Files(**read)


def _list_of(read: Read) -> Read:
    """Of different items."""
    items_of = list_of(read)

    def reading(key: str, value: object) -> tuple[Any, ...]:
        items: tuple[Any, ...] = items_of(key, value)
        for at, item in enumerate(items):
            if item in items[:at]:
                raise BadConfig(f"{key}[{at}]", "is there twice")
        return items

    return reading


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise BadConfig(key, "is not a printable text")
    return value


def _pci(key: str, value: object) -> str:
    text = _text(key, value).lower()
    if not _PCI.fullmatch(text):
        raise BadConfig(key, f"{text!r} is not a PCI address or pattern, such as 0000:3b:02.*")
    return text


def _path(key: str, value: object) -> str:
    text = _text(key, value)
    if not text.startswith("/") or ".." in text.split("/") or text.endswith("/"):
        raise BadConfig(key, f"{text!r} is not an absolute path of a device file")
    return text


_name = matching(
    _POOL, "cannot end a resource's name: up to 63 of a-z, 0-9, '-', '.', first and last a letter or digit"
)
_INTERFACE_KEYS: dict[str, Read] = {
    "names": _list_of(_text),
    "drivers": _list_of(_text),
    "pciAddresses": _list_of(_pci),
    "numaNodes": _list_of(between(0, 1023)),
    "carrier": flag,
}
_MAKE_KEYS: dict[str, Read] = {
    "kind": one_of(*KINDS),
    "parent": link,
    "count": between(1, MOST_LINKS),
    "prefix": _text,
    "mtu": between(68, 65535),
    "mode": one_of(*MODES),
}
_FILES_KEYS: dict[str, Read] = {
    "paths": _list_of(_path),
    "permissions": matching(_PERMISSIONS, "must be of r, w, m in this order"),
    "count": between(1, MOST),
}
_SOURCES: dict[str, Read] = {"interfaces": _interfaces, "make": _make_keys, "files": _files}

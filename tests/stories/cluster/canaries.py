"""Unique strings that stand for secrets, and the search for them in everything that a cluster leaves behind."""

import base64
import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LARGEST = 256 << 20
"""Bytes of a file that is searched; a cluster has none that is larger."""


def _encoded(data: bytes) -> set[bytes]:
    """The part of every base64 text around some bytes that does not depend on what is beside them."""
    texts = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data + b"\0" * (-(before + len(data)) % 3))
        first, last = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        texts |= {text[first:last], text[first:last].replace(b"+", b"-").replace(b"/", b"_")}
    return texts


@dataclass(frozen=True)
class Canary:
    """A secret: what it is, and how it can be written."""

    what: str
    value: str
    forms: frozenset[bytes] = field(init=False)
    """As it is, in hexadecimal, in base64 and in base64 of that, wherever it begins."""

    def __post_init__(self) -> None:
        plain = self.value.encode()
        once = _encoded(plain)
        twice = {form for text in once for form in _encoded(text)}
        object.__setattr__(self, "forms", frozenset({plain, plain.hex().encode(), *once, *twice}))

    def is_in(self, data: bytes) -> bool:
        return any(form in data for form in self.forms)


def canary(what: str) -> Canary:
    return Canary(what, f"canary{os.urandom(12).hex()}")


@dataclass(frozen=True)
class Exempt:
    """Files that must have secrets, and why. Nobody but root may reach them."""

    pattern: str
    why: str

    def allows(self, path: str) -> bool:
        return re.fullmatch(self.pattern, path) is not None


def files(root: Path, below: Iterable[str] = (".",)) -> Iterator[Path]:
    """All regular files below some directories."""
    for directory in below:
        for folder, _, names in os.walk(root / directory):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(OSError):  # removed meanwhile
                    if stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size <= LARGEST:
                        yield path


class Search:
    """Looks for canaries in files, and remembers which exceptions were needed."""

    def __init__(self, canaries: Iterable[Canary], exempt: Iterable[Exempt]) -> None:
        self._canaries, self._exempt = list(canaries), list(exempt)
        self.unused = set(self._exempt)

    def wrong(self, root: Path, below: Iterable[str] = (".",)) -> list[str]:
        """Files that have a canary and may not, or that others than root could read."""
        wrong = []
        for path in files(root, below):
            with contextlib.suppress(OSError):
                data, name = path.read_bytes(), str(path.relative_to(root))
                present = [secret.what for secret in self._canaries if secret.is_in(data)]
                if present and not self._allowed(name):
                    wrong.append(f"{path} has {', '.join(present)}")
                elif present and not is_private(path, root):
                    wrong.append(f"{path} has {', '.join(present)}, and is not for root only")
        return wrong

    def _allowed(self, name: str) -> bool:
        places = [place for place in self._exempt if place.allows(name)]
        self.unused.difference_update(places)
        return bool(places)


def is_private(path: Path, root: Path) -> bool:
    """Whether only root can read a file: by its own mode, or because a directory above it is closed to others."""
    if not _others(path):
        return True
    return any(not _others(folder) & 0o011 for folder in path.parents if folder == root or root in folder.parents)


def _others(path: Path) -> int:
    """The permission bits of everybody but the owner."""
    return stat.S_IMODE(path.stat().st_mode) & 0o077

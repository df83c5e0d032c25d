"""Finds the compiled programs of the wheel: `podwire-shim` and `podwire-cni`."""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

ELF = b"\x7fELF"
HELP = "install the wheel of this platform, or install gcc (Debian: apt install gcc libc6-dev) and `pip install` again"


class ShimMissing(FileNotFoundError):
    """`podwire-shim` is not installed: no container can be started."""


def places(name: str = "podwire-shim") -> Iterator[Path]:
    """A wheel has a program as package data; an editable install only among the scripts."""
    yield Path(__file__).parent / name
    yield Path(sys.executable).parent / name
    yield Path(sysconfig.get_path("scripts")) / name


def is_program(path: Path) -> bool:
    """An ELF file that may be executed. A script of the same name is not the shim."""
    try:
        with path.open("rb") as file:
            return os.access(path, os.X_OK) and file.read(len(ELF)) == ELF
    except OSError:
        return False


def find_shim(candidates: Iterable[Path] | None = None) -> Path:
    """Returns the path of `podwire-shim`. Raises ShimMissing, which says how to get it."""
    searched = list(places() if candidates is None else candidates)
    for path in searched:
        if is_program(path):
            return path
    raise ShimMissing(f"podwire-shim is not in {', '.join(dict.fromkeys(map(str, searched)))}: {HELP}")


def find_forwarder() -> Path | None:
    """Returns the path of `podwire-cni`, the program of every CNI plugin. None: the plugins run as Python scripts."""
    return next(filter(is_program, places("podwire-cni")), None)

"""Where the compiled programs are: in the package, beside the interpreter, or nowhere, and then Python serves."""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ELF = b"\x7fELF"


class Found(NamedTuple):
    argv: tuple[str, ...]
    """What a command line begins with."""
    compiled: bool
    """The static C program, and not its stand-in in Python, which starts in 60 ms instead of 1 and takes 12 MB."""
    where: str
    """For people: which it is, and where."""


def places(name: str = "podwire-shim") -> Iterator[Path]:
    """A wheel has it as package data; an editable install only among the scripts."""
    yield Path(__file__).parent / name
    yield Path(sys.executable).parent / name
    yield Path(sysconfig.get_path("scripts")) / name


def is_program(path: Path) -> bool:
    """Where there was no compiler, a script of that name starts the stand-in: that one is started directly instead."""
    try:
        with path.open("rb") as file:
            return os.access(path, os.X_OK) and file.read(len(ELF)) == ELF
    except OSError:
        return False


def find(candidates: Iterable[Path] | None = None) -> Found:
    for each in places() if candidates is None else candidates:
        if is_program(each):
            return Found((str(each),), compiled=True, where=f"the C program {each}")
    argv = (sys.executable, "-I", "-m", "podwire.shim.standin")
    return Found(argv, compiled=False, where=f"the stand-in in Python, run by {sys.executable}")


def find_forwarder() -> Path | None:
    """`podwire-cni`, the program of every CNI plugin; None where there was no compiler."""
    return next(filter(is_program, places("podwire-cni")), None)

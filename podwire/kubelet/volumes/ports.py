"""Interface of the volume manager to the kernel: mounts. Called in worker threads."""

from collections.abc import Sequence
from typing import Protocol

from podwire.linux.fs.values import Mount
from podwire.linux.values import Path


class Mounts(Protocol):
    def mount(self, source: str, target: Path, kind: str, options: Sequence[str] = ()) -> None: ...

    def bind(self, source: Path, target: Path, *, recursive: bool = False, read_only: bool = False) -> None: ...

    def unmount(self, target: Path, *, lazily: bool = False) -> None: ...

    def list(self) -> list[Mount]: ...

    def is_mounted(self, target: Path) -> bool: ...

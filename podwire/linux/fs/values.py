"""Values of file systems: mounts."""

from typing import NamedTuple


class Mount(NamedTuple):
    """One line of mountinfo."""

    id: int
    parent: int
    device: str
    root: str
    target: str
    options: tuple[str, ...]
    propagation: tuple[str, ...]
    kind: str
    source: str
    super_options: tuple[str, ...]

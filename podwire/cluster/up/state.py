"""What `up` decided for a cluster and keeps: the same ports, ranges and places after every start."""

from pathlib import Path

import msgspec

from podwire.cluster.hardware.profile import Profile
from podwire.durable.files import remove_durably, write_durably

FORMAT = 1


class NewerState(Exception):
    """A later podwire wrote it."""


class BrokenState(Exception):
    """It cannot be read."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its name, its number within the cluster, and whether it has namespaces of its own."""

    name: str
    number: int
    own: bool


class State(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
    nodes: tuple[NodeRecord, ...]
    runtime: str = "podwire"
    """`podwire`, or where a foreign runtime listens."""
    store: str = ""
    """The URL of the API server's store; empty for its own."""
    made: tuple[str, ...] = ()
    """Directories that were not there before; removed again if they are empty or wholly ours."""
    hardware: Profile | None = None
    """What its node is said to have."""
    format: int = FORMAT


class _Format(msgspec.Struct):
    format: int


def load(path: Path) -> State | None:
    """None when there is none. Raises NewerState, BrokenState."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(text, type=_Format).format
        if found > FORMAT:
            raise NewerState(f"{path}: format {found} is of a later podwire; this one knows {FORMAT}")
        return msgspec.json.decode(text, type=State)
    except msgspec.MsgspecError as error:
        raise BrokenState(f"{path}: {error}; `podwire down` removes what it can find") from error


def save(path: Path, state: State) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_durably(path, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")


def forget(path: Path) -> None:
    remove_durably(path)

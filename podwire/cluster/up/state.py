"""The state of a cluster that `up` decided once: slot, nodes, runtime, store and hardware stay the same on every start.

The record is `up.json` in the cluster's state directory, in the format of `podwire.durable.records`. Format 1 was plain
JSON with a field `format`; it is read and replaced by the next write. A damaged record is quarantined, and the cluster
counts as existing until `podwire down` has removed it.
"""

from pathlib import Path

import msgspec

from podwire.cluster.hardware.profile import Profile
from podwire.durable.codecs import json_codec
from podwire.durable.layout import QUARANTINED
from podwire.durable.records import NewerFormat, Records

FORMAT = 2


class BrokenState(Exception):
    """The record is damaged."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its name, its number within the cluster, and whether it has its own namespaces."""

    name: str
    number: int
    own: bool


class State(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
    nodes: tuple[NodeRecord, ...]
    runtime: str = "podwire"
    """`podwire`, or the endpoint of a foreign runtime."""
    store: str = ""
    """The URL of the API server's store; empty for its own."""
    made: tuple[str, ...] = ()
    """Directories that `up` created; removed again if they are empty or entirely ours."""
    hardware: Profile | None = None
    """The simulated hardware of each node."""
    advertise: str = ""
    """The address of this machine at which others join the cluster; empty: none can."""
    machine_network: str = "auto"
    """How packets go to pods of other machines."""
    joined: str = ""
    """The API server of the cluster that this machine joined as a node; empty: the cluster is on this machine."""
    node_ips: tuple[str, ...] = ()
    """Addresses that the operator chose for a node that joined; empty: those of the machine, which may change."""
    owner: tuple[int, int] | None = None
    """User and group who may read the kubeconfig: those who called `sudo podwire up`. None for root alone."""


def load(path: Path) -> State | None:
    """Returns None without a record. Raises NewerFormat, BrokenState, OSError."""
    state = _records(path).get(path.stem)
    if state is None and (damaged := _quarantined(path)).exists():
        raise BrokenState(f"{damaged}: the cluster's record is damaged; `podwire down` removes what it can find")
    return state


def exists(path: Path) -> bool:
    """Whether there is a record, damaged or not."""
    return path.exists() or _quarantined(path).exists()


def save(path: Path, state: State) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _records(path).put(path.stem, state)


def remove(path: Path) -> None:
    records = _records(path)
    records.remove(path.stem)
    _quarantined(path).unlink(missing_ok=True)


def _records(path: Path) -> Records[State]:
    return Records(path.parent, json_codec(State), format=FORMAT, migrate=_migrate)


def _quarantined(path: Path) -> Path:
    return path.with_name(path.name + QUARANTINED)


def _migrate(_format: int, data: bytes) -> State:
    """Reads plain JSON with a field `format`."""
    try:
        format_ = int(msgspec.json.decode(data)["format"])
        if format_ > 1:
            raise NewerFormat(format_)
        return msgspec.json.decode(data, type=State)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error

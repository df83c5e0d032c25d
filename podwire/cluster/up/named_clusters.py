"""Names of clusters: `podwire up --name x` has its prefix below one directory of root's, and a context `podwire-x`."""

import os
import re
from pathlib import Path

import msgspec

from podwire.cluster.up import state, status_file
from podwire.cluster.up.layout import LONGEST, BadPrefix, Layout, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.slots import Slot
from podwire.cluster.up.state import BrokenState
from podwire.durable.records import NewerFormat
from podwire.linux.errors import NotPermitted

DIRECTORY = Path("/var/lib/podwire-clusters")
DEFAULT = "default"
"""The name of the cluster with the prefix /."""
CONTEXT = "podwire"
LONGEST_NAME = LONGEST - len(os.fsencode(DIRECTORY)) - 1
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class BadName(Exception):
    """Says what a name must be."""


def prefix_of(name: str) -> Path:
    """Raises BadName."""
    if name == DEFAULT:
        return Path("/")
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        rule = f"lower-case letters, digits and '-', at most {LONGEST_NAME} characters, such as dev or ci-1"
        raise BadName(f"{name!r} is not the name of a cluster: {rule}")
    return DIRECTORY / name


def name_of(prefix: Path) -> str:
    """Returns the name of a cluster; empty for one that was made with --prefix."""
    if prefix == Path("/"):
        return DEFAULT
    return prefix.name if prefix.parent == DIRECTORY and _NAME.fullmatch(prefix.name) else ""


def context_of(layout: Layout) -> str:
    """Returns the name of the kubeconfig's context."""
    name = "" if layout.is_default else name_of(layout.prefix)
    return f"{CONTEXT}-{name}" if name else CONTEXT


class ClusterEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cluster of this machine."""

    name: str
    """Empty for one that was made with --prefix."""
    prefix: str
    state: str
    """up, starting, stopped, damaged, newer (made by a newer podwire), or unknown to users who are not root."""
    nodes: int = 0
    api_server: str = ""
    kubeconfig: str = ""
    context: str = ""


def clusters(claims: SlotClaims) -> list[ClusterEntry]:
    """Returns the clusters of this machine: the default one first, then by name, then by prefix."""
    named = [path for path in DIRECTORY.iterdir() if name_of(path)] if DIRECTORY.is_dir() else []
    prefixes = {Path("/"), *named, *claims.prefixes()}
    entries = [entry for prefix in prefixes if (entry := _entry(prefix)) is not None]
    return sorted(entries, key=lambda entry: (entry.name != DEFAULT, not entry.name, entry.name, entry.prefix))


def _entry(prefix: Path) -> ClusterEntry | None:
    """Returns None where no cluster is."""
    known, reason = None, ""
    try:
        layout = layout_of(prefix)
        if not state.exists(layout.record):
            return None
        known = state.load(layout.record)
        supervisor = status_file.read(layout)
    except NewerFormat:
        reason = "newer"
    except BrokenState:
        reason = "damaged"
    except (BadPrefix, NotPermitted, PermissionError):
        reason = "unknown"
    layout = Layout(prefix)
    entry = ClusterEntry(
        name=name_of(prefix),
        prefix=str(prefix),
        state=reason,
        kubeconfig=str(layout.kubeconfig),
        context=context_of(layout),
    )
    if reason or known is None:
        return entry
    alive = supervisor if supervisor is not None and status_file.is_alive(supervisor) else None
    return msgspec.structs.replace(
        entry,
        state="stopped" if alive is None else "up" if alive.up else "starting",
        nodes=len(known.nodes),
        api_server=f"https://127.0.0.1:{Slot(known.slot).api_port}",
    )


def remove_directory() -> None:
    """Removes the directory of named clusters with the last of them."""
    try:
        DIRECTORY.rmdir()
    except OSError:  # others are there, or it does not exist
        return

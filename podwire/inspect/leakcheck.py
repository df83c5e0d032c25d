"""What podwire made on this host, against what it knows: whatever no record explains has leaked. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Leftover(NamedTuple):
    """Something that podwire made, known by the mark of its owner."""

    kind: str
    name: str
    owner: str
    """The id of the sandbox or the container that it was made for."""


def leaks(traces: Iterable[Leftover], owners: Collection[str]) -> list[Leftover]:
    """Those whose owner nobody knows."""
    return sorted(trace for trace in set(traces) if trace.owner not in owners)


def lasting(first: Iterable[Leftover], second: Iterable[Leftover]) -> list[Leftover]:
    """Those that two looks found: what was about to be removed, or just made, is none."""
    return sorted(set(first) & set(second))


def owner_of_link(alias: str) -> str | None:
    """`podwire:TOKEN NETWORK/ID/IFNAME`; None for a link that no pod has."""
    mark, _, rest = alias.partition(" ")
    parts = rest.split("/")
    return parts[1] if mark.startswith("podwire:") and len(parts) > 1 else None


def owner_of_element(comment: str) -> str | None:
    """`TOKEN ID IFNAME` of an nft element; None for one that no pod has."""
    parts = comment.split(" ")
    return parts[1] if len(parts) > 1 else None


def table(found: Iterable[Leftover]) -> str:
    rows = [
        ("KIND", "NAME", "OWNER"),
        *((leftover.kind, leftover.name, leftover.owner[:13] or "-") for leftover in found),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )

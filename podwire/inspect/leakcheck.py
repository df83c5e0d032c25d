"""Compares resources that podwire created with its records: a resource without an owner is a leftover. Pure."""

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Leftover(NamedTuple):
    """A resource that podwire created, identified by its owner tag."""

    kind: str
    name: str
    owner: str
    """The id of the sandbox, container or claim for which it was created."""


def leaks(traces: Iterable[Leftover], owners: Collection[str]) -> list[Leftover]:
    """Returns resources whose owner is unknown."""
    return sorted(trace for trace in set(traces) if trace.owner not in owners)


def lasting(first: Iterable[Leftover], second: Iterable[Leftover]) -> list[Leftover]:
    """Returns resources that two looks found: others were just being created or removed."""
    return sorted(set(first) & set(second))


def owner_of_link(alias: str) -> str | None:
    """Parses `podwire:TOKEN NETWORK/ID/IFNAME`; None for a link without a pod."""
    tag, _, rest = alias.partition(" ")
    parts = rest.split("/")
    return parts[1] if tag.startswith("podwire:") and len(parts) > 1 else None


def owner_of_element(comment: str) -> str | None:
    """Parses `TOKEN ID IFNAME` of an nft element; None for one without a pod."""
    parts = comment.split(" ")
    return parts[1] if len(parts) > 1 else None


def table(leftovers: Iterable[Leftover]) -> str:
    rows = [
        ("KIND", "NAME", "OWNER"),
        *((leftover.kind, leftover.name, leftover.owner[:13] or "-") for leftover in leftovers),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )

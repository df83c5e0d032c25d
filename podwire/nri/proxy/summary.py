"""Durations by plugin and hook."""

import statistics
from dataclasses import dataclass, field
from typing import Any

from podwire.nri.proxy.exchange import Exchange, Seen


@dataclass(slots=True)
class Row:
    """One call of one plugin."""

    took: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    failed: int = 0

    def plain(self) -> dict[str, Any]:
        return {
            "calls": len(self.took),
            "failed": self.failed,
            "p50": round(statistics.median(self.took), 6),
            "max": round(max(self.took), 6),
            "max_share": round(max(self.shares), 4) if self.shares else None,
        }


class Summary:
    """Gathers exchanges."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    def add(self, seen: Seen) -> None:
        if not isinstance(seen, Exchange):
            return
        row = self._rows.setdefault((seen.plugin, seen.method), Row())
        row.took.append(seen.took)
        row.failed += seen.error is not None or seen.unanswered
        if seen.share is not None:
            row.shares.append(seen.share)

    def plain(self) -> list[dict[str, Any]]:
        """As JSON values; sorted by plugin."""
        rows = sorted(self._rows.items(), key=lambda each: each[0][0])
        return [{"plugin": plugin, "method": method, **row.plain()} for (plugin, method), row in rows]

    def lines(self) -> list[str]:
        """As a text table."""
        head = ("PLUGIN", "CALL", "CALLS", "FAILED", "P50", "MAX", "OF ITS TIME")
        rows = [head]
        for record in self.plain():
            share = "" if record["max_share"] is None else f"{record['max_share']:.0%}"
            times = (milliseconds(record["p50"]), milliseconds(record["max"]))
            rows.append(
                (record["plugin"], record["method"], str(record["calls"]), str(record["failed"]), *times, share)
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def line(seen: Seen) -> str:
    """One line of the timeline."""
    if not isinstance(seen, Exchange):
        return f"{seen.at:9.3f}  {seen.plugin:14}  {seen.what}"
    share = "" if seen.share is None or seen.budget is None else f"{seen.share:4.0%} of {seen.budget:g} s"
    name = f"{seen.method} (via {seen.via})" if seen.via else seen.method
    asked = name if seen.asked_by == "runtime" else f"→ {name}"
    what = f"{seen.began:9.3f}  {seen.plugin:14}  {asked:27}  {milliseconds(seen.took):>10}  {share:14}  {seen.subject}"
    outcome = "" if seen.outcome == "OK" else f"  ✕ {seen.outcome}{f': {seen.error}' if seen.error else ''}"
    changes = "".join(f"\n{'':27}{change}" for change in seen.changes)
    return f"{what}{outcome}".rstrip() + changes

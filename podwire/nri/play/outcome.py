"""The outcome of a step."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.nri.play.script import Step
from podwire.nri.proxy import Exchange, Noted
from podwire.nri.script import to_plain
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A container's config.json before and after a step."""

    container: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    def diff(self) -> list[str]:
        """As `diff -u` shows it; empty when nothing changed."""
        before, after = (json.dumps(spec, indent=2, sort_keys=True).splitlines() for spec in (self.before, self.after))
        name = f"{self.container}/config.json"
        return list(difflib.unified_diff(before, after, name, f"{name} adjusted", n=1, lineterm=""))


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Filled in while the step is played."""

    step: Step
    exchanges: list[Exchange] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)
    error: str = ""
    adjust: pb.ContainerAdjustment | None = None
    updates: list[pb.ContainerUpdate] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    connected: bool = True
    why_gone: str = ""
    took: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls that the plugin got."""
        return tuple(exchange.method for exchange in self.exchanges if exchange.asked_by == "runtime")

    @property
    def asks(self) -> tuple[str, ...]:
        """The calls that the plugin made."""
        return tuple(exchange.method for exchange in self.exchanges if exchange.asked_by == "plugin")

    def synchronized(self) -> dict[str, int]:
        """Counts the pods, containers and requests of Synchronize."""
        sent = [exchange.request for exchange in self.exchanges if exchange.method == methods.SYNCHRONIZE.name]
        requests = [request for request in sent if isinstance(request, pb.SynchronizeRequest)]
        return {
            "pods": sum(len(request.pods) for request in requests),
            "containers": sum(len(request.containers) for request in requests),
            "batches": len(requests),
        }

    def registered(self) -> tuple[str, int | None]:
        """The name that it registered with, and its event mask."""
        plugin, mask = "", None
        for exchange in self.exchanges:
            if isinstance(exchange.request, pb.RegisterPluginRequest):
                plugin = f"{exchange.request.plugin_idx}-{exchange.request.plugin_name}"
            if isinstance(exchange.response, pb.ConfigureResponse):
                mask = exchange.response.events
        return plugin, mask

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "step": self.step.title,
            "where": self.step.where,
            "took": round(self.took, 6),
            "error": self.error,
            "connected": self.connected,
            "calls": [exchange.plain() for exchange in self.exchanges],
            "notes": [note.what for note in self.notes],
            "adjust": None if self.adjust is None else to_plain(self.adjust),
            "updates": [to_plain(update) for update in self.updates],
            "specs": [
                {"container": write.container, "before": write.before, "after": write.after} for write in self.written
            ],
            "failures": self.failures,
        }

"""Observations on one connection: calls with their responses, and notes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from podwire.nri.script import to_plain
from podwire.protocols.grpc_status import OK, RpcError, details

UNKNOWN = "?"
"""A plugin that has not registered yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One call and its outcome."""

    plugin: str
    """NN-name."""
    asked_by: str
    """`runtime` or `plugin`."""
    method: str
    via: str = ""
    """StateChange, if the event was sent by it."""
    began: float
    took: float
    budget: float | None
    """Seconds that the caller would have waited."""
    request: Message | None
    """None when it is invalid."""
    response: Message | None = None
    error: RpcError | None = None
    unanswered: bool = False

    @property
    def share(self) -> float | None:
        """The used share of the budget; 1 is all of it."""
        return self.took / self.budget if self.budget else None

    @property
    def outcome(self) -> str:
        if self.unanswered:
            return "no answer"
        return self.error.name if self.error else OK

    @property
    def subject(self) -> str:
        """namespace/pod, and the container."""
        request: Any = self.request
        fields = request.DESCRIPTOR.fields_by_name if request is not None else {}
        pod = f"{request.pod.namespace}/{request.pod.name}" if "pod" in fields else ""
        container = request.container.name if "container" in fields else ""
        return " ".join(filter(None, (pod, container)))

    @property
    def changes(self) -> list[str]:
        """The changes of a response, one line per value."""
        if self.method == "UpdateContainers" and self.request is not None:
            return list(_lines(to_plain(self.request)))
        if self.response is None or self.method == "Configure":
            return []
        response = to_plain(self.response)
        response.pop("more", None)
        return list(_lines(response))

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "plugin": self.plugin,
            "asked_by": self.asked_by,
            "method": self.method,
            **({"via": self.via} if self.via else {}),
            "began": round(self.began, 6),
            "took": round(self.took, 6),
            "budget": self.budget,
            "share": None if self.share is None else round(self.share, 4),
            "outcome": self.outcome,
            **({"error": details(self.error)} if self.error else {}),
            "request": None if self.request is None else to_plain(self.request),
            "response": None if self.response is None else to_plain(self.response),
            "changes": self.changes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An event that is not a call: a connection opens or closes, invalid bytes."""

    plugin: str
    at: float
    what: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return {"plugin": self.plugin, "at": round(self.at, 6), "note": self.what, **self.facts}


Seen = Exchange | Noted


def _lines(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _lines(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for number, below in enumerate(value):
            yield from _lines(below, f"{path}[{number}]")
    elif path:
        yield f"{path}={value}"

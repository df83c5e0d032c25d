"""A record: one end of a call, as a line of JSON.

A call is a `begin` (no outcome) and an `end` with the same id; what it delivers in between has the outcome EVENT and
the same id again. `from` and `to` are the ends of the arrow: an `end` points back. The pod is its UID as 32 hex digits,
which is a W3C trace id; None for calls about a node, or while the pod is unknown.
"""

import hashlib
import re
from typing import Any

import msgspec

from podwire.interfaces import EVENT
from podwire.protocols.grpc_status import OK

MOST_DETAIL = 32 * 1024
"""Bytes of a record's detail as JSON."""

_HEX = re.compile(r"[0-9a-f]{32}")


class Record(msgspec.Struct, frozen=True, kw_only=True, rename={"caller": "from", "callee": "to"}):
    id: str
    """`SENDER.CALL`: the sender of the record, and the call."""
    seq: int
    """Counts the records of a sender, so that a lost record is noticed."""
    time: float
    """Seconds since the epoch."""
    caller: str
    callee: str
    method: str
    pod: str | None = None
    node: str = ""
    outcome: str = ""
    detail: Any = {}

    @property
    def sender(self) -> str:
        return self.id.rpartition(".")[0]

    @property
    def begins(self) -> bool:
        return not self.outcome

    @property
    def is_event(self) -> bool:
        return self.outcome == EVENT

    @property
    def ends(self) -> bool:
        return bool(self.outcome) and self.outcome != EVENT


def succeeded(outcome: str) -> bool:
    """Whether an outcome is a success: OK, or an HTTP status below 400."""
    return outcome in (OK, EVENT) or (outcome.isdecimal() and int(outcome) < 400)


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Record).decode


def pod_id(uid: str) -> str:
    """Returns a pod's trace id: its UID without dashes; a UID of another form is hashed."""
    plain = uid.replace("-", "").lower()
    return plain if _HEX.fullmatch(plain) else hashlib.blake2s(uid.encode(), digest_size=16).hexdigest()

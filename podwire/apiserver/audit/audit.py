"""Records requests as audit events: at their beginning, when a stream begins, and at their end.

A request pays for a decision of the policy and for the values of its event. Everything else (decoding bodies, leaving
out managedFields, encoding, writing) is done where the records go, in the thread of the log.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import msgspec

from podwire.apiserver.audit.policy import (
    COMPLETE,
    LEVEL_NAMES,
    PANIC,
    RECEIVED,
    STARTED,
    Decision,
    Level,
    Policy,
)
from podwire.apiserver.flowcontrol.watches import CountedChunks
from podwire.apiserver.identity.authorization import Attributes
from podwire.apiserver.identity.users import User
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Stream

HEADER = "Audit-Id"
MOST_AGENT = 1024
"""Characters of a user agent; upstream cuts it there, too."""


@dataclass(slots=True)
class Record:
    """One event, as far as the request knows it; bodies as they are on the wire."""

    event: dict[str, Any]
    request_body: bytes = b""
    request_media: str = ""
    response_body: bytes = b""
    response_in_event: bool = False
    """The response is part of the event; otherwise only its Status and its name are."""
    omit_managed_fields: bool = False

    @property
    def size(self) -> int:
        return len(self.request_body) + len(self.response_body)


Sink = Callable[[Record], None]
"""Takes a record and returns at once."""


class Audit:
    """Begins entries for requests that the policy wants to be recorded."""

    def __init__(self, policy: Policy, sink: Sink, clock: Clock) -> None:
        self._policy = policy
        self._sink = sink
        self._clock = clock

    def begin(self, request: Request, user: User | None, sender: User | None, attributes: Attributes) -> "Entry | None":
        """Returns the entry of a request, whose first stage is recorded; None when it is not to be recorded.

        `user` is the user after impersonation, `sender` the one before; None when authentication failed.
        """
        decision = self._policy.decide(sender, attributes)
        if decision.level is Level.NONE:
            return None
        entry = Entry(self._sink, self._clock, decision, request, _event(request, user, sender, attributes, decision))
        entry.event["requestReceivedTimestamp"] = rfc3339_micro(self._clock.wall())
        entry.record(RECEIVED)
        return entry


def _event(
    request: Request, user: User | None, sender: User | None, attributes: Attributes, decision: Decision
) -> dict[str, Any]:
    query = urlencode([(name, value) for name, values in request.query.items() for value in values])
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": LEVEL_NAMES[decision.level],
        "auditID": request.headers.get("audit-id", "")[:64] or str(uuid.uuid4()),
        "stage": "",
        "requestURI": f"{request.path}?{query}" if query else request.path,
        "verb": attributes.verb,
        "user": _user(sender) if sender else {},
    }
    if user is not None and user is not sender:
        event["impersonatedUser"] = _user(user)
    if request.peer:
        event["sourceIPs"] = [request.peer]
    if agent := request.headers.get("user-agent"):
        event["userAgent"] = agent if len(agent) <= MOST_AGENT else f"{agent[:MOST_AGENT]}...TRUNCATED"
    if attributes.resource:
        event["objectRef"] = _object_reference(attributes)
    return event


def _user(user: User) -> dict[str, Any]:
    described: dict[str, Any] = {"username": user.name}
    if user.uid:
        described["uid"] = user.uid
    if user.groups:
        described["groups"] = user.groups
    if user.extra:
        described["extra"] = user.extra
    return described


def _object_reference(attributes: Attributes) -> dict[str, str]:
    parts: Mapping[str, str] = {
        "resource": attributes.resource,
        "namespace": attributes.namespace,
        "name": attributes.name,
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "subresource": attributes.subresource,
    }
    return {key: value for key, value in parts.items() if value}


@dataclass(slots=True)
class Entry:
    """The events of one request."""

    _sink: Sink
    _clock: Clock
    _decision: Decision
    _request: Request
    event: dict[str, Any]
    _body: bytes = b""
    _annotations: dict[str, str] = field(default_factory=dict)
    _ended: bool = False

    @property
    def id(self) -> str:
        return str(self.event["auditID"])

    def reading(self, request: Request) -> Request:
        """Returns the request; its body is part of the event if the policy wants that."""
        if self._decision.level < Level.REQUEST:
            return request

        async def read(limit: int) -> bytes:
            self._body = await request.read(limit)
            return self._body

        return msgspec.structs.replace(request, read=read)

    def authorized(self, *, allowed: bool, reason: str) -> None:
        """Says what was decided; upstream's annotations."""
        self._annotations["authorization.k8s.io/decision"] = "allow" if allowed else "forbid"
        self._annotations["authorization.k8s.io/reason"] = reason

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Adds what admission says about the request."""
        self._annotations.update(annotations)

    def answered(self, answer: Answer, *, failed: bool = False) -> Answer:
        """Records the answer; a stream or a conversation is complete when it ends. `failed`: an internal error."""
        if isinstance(answer, Response):
            self.record(PANIC if failed else COMPLETE, answer)
            return msgspec.structs.replace(answer, headers=(*answer.headers, (HEADER, self.id)))
        if isinstance(answer, Stream) and answer.whole:
            self.event["responseStatus"] = {"metadata": {}, "code": answer.status}
            chunks = CountedChunks(self._read_whole(answer), self._end)
            return replace(answer, chunks=chunks, headers=(*answer.headers, (HEADER, self.id)))
        self.record(STARTED, answer)
        if isinstance(answer, Stream):
            chunks = CountedChunks(answer.chunks, self._end)
            return replace(answer, chunks=chunks, headers=(*answer.headers, (HEADER, self.id)))
        release = answer.release

        async def release_and_record() -> None:
            self._end()
            await release()

        return replace(answer, release=release_and_record)

    async def _read_whole(self, answer: Stream) -> AsyncIterator[bytes]:
        """Yields the chunks of a long body; the event of its end has the body, if the policy wants that."""
        parts = []
        async for chunk in answer.chunks:
            if self._decision.level is Level.REQUEST_RESPONSE:
                parts.append(chunk)
            yield chunk
        self._ended = True
        self.record(COMPLETE, Response(status=answer.status, body=b"".join(parts), content_type=answer.content_type))

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self.record(COMPLETE)

    def record(self, stage: str, answer: Answer | None = None) -> None:
        """Hands the event of a stage to the log, unless the policy omits it."""
        if answer is not None:
            code = answer.status if isinstance(answer, Response | Stream) else 101
            self.event["responseStatus"] = {"metadata": {}, "code": code}
        if stage in self._decision.omit_stages:
            return
        event = {**self.event, "stage": stage, "stageTimestamp": rfc3339_micro(self._clock.wall())}
        if self._annotations:
            event["annotations"] = dict(self._annotations)
        record = Record(event, omit_managed_fields=self._decision.omit_managed_fields)
        if stage != RECEIVED and self._body:
            record.request_body = self._body
            record.request_media = self._request.headers.get("content-type", "")
        if isinstance(answer, Response) and answer.content_type.startswith("application/json"):
            whole = self._decision.level is Level.REQUEST_RESPONSE
            if whole or answer.status >= 400 or event["verb"] == "create":
                record.response_body, record.response_in_event = answer.body, whole
        self._sink(record)

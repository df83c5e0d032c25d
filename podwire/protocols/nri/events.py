"""Events that a plugin may subscribe to: each is one call, one bit of a mask, and for older peers one StateChange."""

import enum
import re
from dataclasses import dataclass
from typing import Any

from podwire.protocols.grpc_methods import Unary
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb


class Event(enum.IntEnum):
    """Numbers as they travel."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def bit(self) -> int:
        return 1 << (self - 1)

    @property
    def method(self) -> Unary[Any, Any]:
        """The call that carries it since 0.12; some carried it always."""
        return _METHODS[self]

    @property
    def title(self) -> str:
        """As specifications write it: RunPodSandbox."""
        return self.method.name

    @property
    def was_state_change(self) -> bool:
        """Whether it travelled as a StateChange before 0.12."""
        return self not in _ALWAYS_CALLS


_METHODS: dict[Event, Unary[Any, Any]] = {event: getattr(methods, event.name) for event in Event}

_ALWAYS_CALLS = frozenset(
    {
        Event.CREATE_CONTAINER,
        Event.UPDATE_CONTAINER,
        Event.STOP_CONTAINER,
        Event.UPDATE_POD_SANDBOX,
        Event.VALIDATE_CONTAINER_ADJUSTMENT,
    }
)

BY_TITLE = {event.title: event for event in Event}

FIRST_EVENTS = (1 << 11) - 1
"""Events before 0.10; an older runtime rejects a plugin that subscribes to more."""
ALL_EVENTS = (1 << 14) - 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """The events that somebody wants."""

    mask: int

    def __contains__(self, event: Event) -> bool:
        return bool(self.mask & event.bit)

    @classmethod
    def of(cls, *events: Event) -> "Subscription":
        return cls(sum(event.bit for event in set(events)))

    def known_to(self, version: str) -> "Subscription":
        """Returns the events that a runtime of that NRI version knows; see `told_version` for one that tells none."""
        return Subscription(self.mask & events_of(version))

    @property
    def unknown(self) -> int:
        """Bits that stand for no event."""
        return self.mask & ~ALL_EVENTS


ALL = Subscription(ALL_EVENTS)


def events_of(version: str) -> int:
    """The mask of all events of a version such as `v0.11.0`; of nothing, what every version has.

    Runtimes report their version since 0.12, so one with a meaningless version (builds without a version report
    0.0.0-unknown) is at least that new.
    """
    if not version:
        return FIRST_EVENTS
    found = _numbers(version)
    return FIRST_EVENTS if found is not None and (0, 0) < found[:2] < (0, 10) else ALL_EVENTS


def nri_version_of(configure: pb.ConfigureRequest) -> str:
    """The version of NRI that a runtime tells, or that is known of its release when it is too old to tell; or empty."""
    if configure.NRI_version:
        return configure.NRI_version
    release = _numbers(configure.runtime_version)
    rows = _BEFORE_VERSIONS.get(configure.runtime_name.lower(), ())
    return next((version for first, version in rows if release is not None and release >= first), "")


_BEFORE_VERSIONS: dict[str, tuple[tuple[tuple[int, int, int], str], ...]] = {
    "containerd": (
        ((2, 2, 1), "v0.11.0"),
        ((2, 2, 0), "v0.10.0"),
        ((1, 7, 26), "v0.8.0"),
        ((1, 7, 14), "v0.6.0"),
        ((1, 7, 7), "v0.4.0"),
        ((1, 7, 0), "v0.3.0"),
    ),
    "cri-o": (
        ((1, 35, 0), "v0.11.0"),
        ((1, 34, 0), "v0.10.0"),
        ((1, 32, 0), "v0.9.0"),
        ((1, 29, 0), "v0.6.0"),
        ((1, 26, 0), "v0.2.0"),
    ),
}
"""Since which release a runtime has which version at least; newest first."""


def _numbers(version: str) -> tuple[int, int, int] | None:
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def as_state_change(event: Event, request: Any) -> pb.StateChangeEvent:
    """The same event as peers before 0.12 receive it."""
    message = pb.StateChangeEvent(event=pb.Event.Name(int(event)))
    message.pod.CopyFrom(request.pod)
    if "container" in request.DESCRIPTOR.fields_by_name:
        message.container.CopyFrom(request.container)
    return message


def from_state_change(message: pb.StateChangeEvent) -> tuple[Event, Any] | None:
    """The event and the request that says the same since 0.12; None for one that never travelled so."""
    try:
        event = Event(message.event)
    except ValueError:
        return None
    if not event.was_state_change:
        return None
    request = event.method.request()
    request.pod.CopyFrom(message.pod)
    if "container" in request.DESCRIPTOR.fields_by_name:
        request.container.CopyFrom(message.container)
    return event, request

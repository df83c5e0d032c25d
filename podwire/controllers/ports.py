"""The feed of changes that drives all controllers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from podwire.controllers.metadata import PartialObject


@dataclass(frozen=True, slots=True)
class Present:
    """An object exists, new or changed."""

    seen: PartialObject


@dataclass(frozen=True, slots=True)
class Absent:
    """An object was deleted; `seen` is its last known metadata."""

    seen: PartialObject
    vanished: bool = False
    """Its deletion was not observed: its kind is no longer served."""


@dataclass(frozen=True, slots=True)
class Complete:
    """All existing objects were reported: an object that was not reported does not exist.

    Reported again when new kinds were added.
    """


FeedEvent = Present | Absent | Complete
Notify = Callable[[FeedEvent], None]


class Feed(Protocol):
    """Every object of every kind and its changes; one subscription for all controllers.

    Inside the API server's process it is one watch on the whole store; over HTTP, `MetadataInformer`.
    """

    async def follow(self, notify: Notify, whole: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Reports everything, in order per object, until cancelled: objects of the resources `whole` with their JSON,
        of others the metadata."""
        ...

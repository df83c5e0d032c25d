"""Remembers our last write of each object, so that no decision is made on a version before it.

The feed reports a write after the request is answered. A controller that reads its own object from the feed meanwhile
would decide on the old status: it waits for the report instead, which calls it again.
"""

from podwire.controllers.metadata import PartialObject
from podwire.protocols.k8sapi.watch import Object


class OwnWrites:
    """The resourceVersion of our last write by uid, until the feed reports it."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def wrote(self, object_: Object) -> None:
        """Records the answer of a write."""
        meta = object_["metadata"]
        self._versions[meta["uid"]] = meta["resourceVersion"]

    def lags(self, seen: PartialObject) -> bool:
        """Returns whether the feed shows the object before our last write."""
        written, version = self._versions.get(seen.uid, ""), seen.metadata.resource_version
        if version.isdigit() and written.isdigit() and int(version) < int(written):
            return True
        self._versions.pop(seen.uid, None)
        return False

    def forget(self, uid: str) -> None:
        self._versions.pop(uid, None)

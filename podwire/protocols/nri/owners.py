"""Field ownership: which plugin set which field of which container.

A field is set by one plugin only, or by one per key (env by variable, mounts by destination). Who wants to change what
another plugin has set must remove it in the same answer: then it is not by accident.
"""

from dataclasses import dataclass

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.entries import discard
from podwire.protocols.nri.errors import Conflict

REMOVED = "-"
"""Stands before a key that is to be removed, and before the owner of a field that was removed without a key."""


class Owners:
    """`message` is sent to validators: its keys are those of the merged adjustment, removal marks included."""

    def __init__(self) -> None:
        self.message = pb.OwningPlugins()
        self.taken_away: dict[tuple[str, pb.Field, str], str] = {}
        """Plugins that removed a value of another plugin; a third one that sets it again conflicts with them."""

    def copy(self) -> "Owners":
        copied = Owners()
        copied.message.CopyFrom(self.message)
        copied.taken_away = dict(self.taken_away)
        return copied


@dataclass(frozen=True, slots=True)
class Claims:
    """One plugin claiming fields of one container."""

    owners: Owners
    container: str
    plugin: str

    def claim(self, field: pb.Field, key: str = "") -> None:
        """Raises Conflict."""
        if not key:
            self._claim_simple(field)
            return
        found = self._fields.compound[field].owners
        spot = (self.container, field, key)
        other = found.get(key) or self.owners.taken_away.get(spot)
        if other and (key in found or other != self.plugin):
            raise Conflict(pb.Field.Name(field), key, (self.plugin, other))
        self.owners.taken_away.pop(spot, None)
        discard(found, REMOVED + key)
        found[key] = self.plugin

    def _claim_simple(self, field: pb.Field) -> None:
        found = self._fields.simple
        other = found.get(field)
        if other and other != REMOVED + self.plugin:
            raise Conflict(pb.Field.Name(field), "", (self.plugin, other.removeprefix(REMOVED)))
        found[field] = self.plugin

    def owner(self, field: pb.Field, key: str) -> str:
        """Returns the plugin that set the field; empty for a value of the original container."""
        return self._fields.compound[field].owners.get(key, "")

    def join(self, field: pb.Field) -> None:
        """Add to what others may have added too."""
        found = self._fields.simple
        found[field] = f"{found[field]},{self.plugin}" if field in found else self.plugin

    def remove(self, field: pb.Field, key: str = "") -> None:
        """Removes the owner of a field."""
        if not key:
            self._fields.simple[field] = REMOVED + self.plugin
            return
        found = self._fields.compound[field].owners
        if key in found or (self.container, field, key) in self.owners.taken_away:
            self.owners.taken_away[self.container, field, key] = self.plugin
        discard(found, key)
        found[REMOVED + key] = self.plugin

    @property
    def _fields(self) -> pb.FieldOwners:
        return self.owners.message.owners[self.container]

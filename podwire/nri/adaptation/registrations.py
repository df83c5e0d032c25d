"""Who is here, in the order in which plugins are asked; since when others are gone; and who waits for whom."""

import asyncio
import itertools
from collections.abc import Set as AbstractSet

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.protocols.nri.events import Event
from podwire.protocols.nri.names import PluginId


class Registrations:
    """Plugins that have taken their snapshot of the node: from then on every event is theirs, too."""

    def __init__(self) -> None:
        self._taken: list[tuple[PluginId, int, ConnectedPlugin]] = []
        self._numbers = itertools.count()
        self._lost: dict[PluginId, float] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(self, peer: ConnectedPlugin) -> None:
        """By index, then name; of several with the same, who came first is asked first."""
        self._taken.append((peer.id, next(self._numbers), peer))
        self._taken.sort(key=lambda each: each[:2])
        self.changed()

    def changed(self) -> None:
        """Wake whoever waits for a plugin."""
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    def leave(self, peer: ConnectedPlugin, now: float) -> None:
        """It is asked no longer. One that was active counts as lost from now."""
        self._taken = [each for each in self._taken if each[2] is not peer]
        if peer.is_active:
            self._lost[peer.id] = now

    def peers(self) -> list[ConnectedPlugin]:
        return [each for _, _, each in self._taken]

    def next(self, event: Event, asked: AbstractSet[ConnectedPlugin]) -> ConnectedPlugin | None:
        """The first that wants the event and was not asked yet."""
        for _, _, peer in self._taken:
            if peer not in asked and event in peer.events:
                return peer
        return None

    def holds(self, wanted: str) -> bool:
        """Whether a plugin of this name, or NN-name, is here."""
        return any(each.is_meant_by(wanted) for each, _, _ in self._taken)

    def lost_since(self, wanted: str) -> float | None:
        """When the plugin was last lost; None if it never was here."""
        return max((at for plugin, at in self._lost.items() if plugin.is_meant_by(wanted)), default=None)

    async def change(self, within: float | None = None) -> None:
        """Wait until any plugin takes a seat or becomes active, or so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=within)
        finally:
            self._waiting.discard(future)

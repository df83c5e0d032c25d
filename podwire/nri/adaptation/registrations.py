"""The registered plugins in the order in which they are called, and since when others are lost."""

import asyncio
import itertools
from collections.abc import Set as AbstractSet

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.protocols.nri.events import Event
from podwire.protocols.nri.names import PluginId


class Registrations:
    """Plugins that have taken their snapshot of the inventory: from then on they get every event."""

    def __init__(self) -> None:
        self._entries: list[tuple[PluginId, int, ConnectedPlugin]] = []
        self._numbers = itertools.count()
        self._lost: dict[PluginId, float] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, plugin: ConnectedPlugin) -> None:
        """Sorted by index, then name; of two with the same id, the earlier one is called first."""
        self._entries.append((plugin.id, next(self._numbers), plugin))
        self._entries.sort(key=lambda entry: entry[:2])
        self.changed()

    def changed(self) -> None:
        """Wakes all that wait for a plugin."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def remove(self, plugin: ConnectedPlugin, now: float) -> None:
        """A plugin that was active counts as lost from now."""
        self._entries = [entry for entry in self._entries if entry[2] is not plugin]
        if plugin.is_active:
            self._lost[plugin.id] = now

    def plugins(self) -> list[ConnectedPlugin]:
        return [plugin for _, _, plugin in self._entries]

    def next(self, event: Event, called: AbstractSet[ConnectedPlugin]) -> ConnectedPlugin | None:
        """The first plugin that is subscribed to the event and was not called yet."""
        for _, _, plugin in self._entries:
            if plugin not in called and event in plugin.events:
                return plugin
        return None

    def has(self, name: str) -> bool:
        """Whether a plugin of this name, or NN-name, is registered."""
        return any(plugin_id.is_meant_by(name) for plugin_id, _, _ in self._entries)

    def lost_since(self, name: str) -> float | None:
        """The time at which the plugin was lost last; None if it never was active."""
        return max((at for plugin_id, at in self._lost.items() if plugin_id.is_meant_by(name)), default=None)

    async def wait_for_change(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the end of it is normal
        """Waits until a plugin is registered or becomes active, or until the timeout."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            self._waiting.discard(future)

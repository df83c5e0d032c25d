"""Cost of the hooks of each plugin, its state and its last error; kept after it disconnected."""

from dataclasses import dataclass, field

from podwire.protocols.nri.names import PluginId

MAX_RECORDS = 256
"""Plugins that are kept; of those that are gone, the one gone longest is dropped first."""


@dataclass(slots=True)
class HookStatistics:
    """All calls of one hook of one plugin."""

    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    """Time that the plugin took."""
    waited: float = 0.0
    """Seconds that calls waited in the plugin's queue before they were sent."""
    slowest: float = 0.0


@dataclass(slots=True)
class PluginRecord:
    """One plugin, over all its connections."""

    plugin: PluginId
    pid: int = 0
    launched: bool = False
    state: str = "registering"
    """registering, synchronizing, active or gone."""
    since: float = 0.0
    """The event loop's time at which it came into this state."""
    registered: int = 0
    """The number of times that it became active."""
    last_error: str = ""
    hooks: dict[str, HookStatistics] = field(default_factory=dict)

    def add_call(self, hook: str, *, waited: float, took: float, error: str = "") -> None:
        """Count a call that has ended."""
        hooks = self.hooks.setdefault(hook, HookStatistics())
        hooks.calls += 1
        hooks.seconds += took
        hooks.waited += waited
        hooks.slowest = max(hooks.slowest, took)
        if error:
            hooks.failed += 1
            self.last_error = f"{hook}: {error}"


class Statistics:
    """Every plugin that is or was registered, by name and index."""

    def __init__(self) -> None:
        self._records: dict[PluginId, PluginRecord] = {}

    def of(self, plugin: PluginId) -> PluginRecord:
        record = self._records.get(plugin)
        if record is None:
            gone = [old for old in self._records.values() if old.state == "gone"]
            if len(self._records) >= MAX_RECORDS and gone:
                del self._records[min(gone, key=lambda old: old.since).plugin]
            record = self._records[plugin] = PluginRecord(plugin)
        return record

    def all(self) -> list[PluginRecord]:
        return [self._records[plugin] for plugin in sorted(self._records)]

"""What is remembered of each plugin, also after it went: enough to say which one costs how much, and what it broke."""

from dataclasses import dataclass, field

from podwire.protocols.nri.names import PluginId

MAX_RECORDS = 256
"""Plugins that are remembered; of those that are gone, the longest gone is forgotten first."""


@dataclass(slots=True)
class HookRecord:
    """All calls of one hook of one plugin."""

    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    """That the plugin took."""
    waited: float = 0.0
    """Seconds that calls stood in the plugin's queue before they were sent."""
    slowest: float = 0.0


@dataclass(slots=True)
class Record:
    """One plugin, over all its connections."""

    plugin: PluginId
    pid: int = 0
    launched: bool = False
    state: str = "registering"
    """registering, synchronizing, active or gone."""
    since: float = 0.0
    """When it came into this state, in the loop's time."""
    registered: int = 0
    """How many times it came as far as to be active."""
    last_error: str = ""
    hooks: dict[str, HookRecord] = field(default_factory=dict)

    def told(self, hook: str, *, waited: float, took: float, error: str = "") -> None:
        """One call has ended."""
        record = self.hooks.get(hook)
        if record is None:
            record = self.hooks[hook] = HookRecord()
        record.calls += 1
        record.seconds += took
        record.waited += waited
        record.slowest = max(record.slowest, took)
        if error:
            record.failed += 1
            self.last_error = f"{hook}: {error}"


class Records:
    """Every plugin that was here, by its name and index."""

    def __init__(self) -> None:
        self._records: dict[PluginId, Record] = {}

    def of(self, plugin: PluginId) -> Record:
        record = self._records.get(plugin)
        if record is None:
            self._make_room()
            record = self._records[plugin] = Record(plugin)
        return record

    def all(self) -> list[Record]:
        return [self._records[each] for each in sorted(self._records)]

    def _make_room(self) -> None:
        if len(self._records) < MAX_RECORDS:
            return
        gone = [each for each in self._records.values() if each.state == "gone"]
        if gone:
            del self._records[min(gone, key=lambda each: each.since).plugin]

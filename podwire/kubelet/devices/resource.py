"""One extended resource of this node: its devices and its plugin."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from podwire.kubelet.devices.plugin import Plugin
from podwire.kubelet.devices.pool import Pool

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"


@dataclass(slots=True)
class Resource:
    name: str
    pool: Pool = field(default_factory=Pool)
    plugin: Plugin | None = None
    """The last plugin that registered; it may be gone."""
    listed: bool = False
    """The plugin has sent its first list of devices."""
    published: bool = True
    """The Node shows it; not any more when its plugin was gone for longer than the grace period."""

    @property
    def ready(self) -> bool:
        return self.plugin is not None and not self.plugin.gone and self.listed

    @property
    def error(self) -> str:
        """Why its devices cannot be given to pods now; empty when they can."""
        if self.plugin is None:
            return f"the device plugin of {self.name} has not registered yet"
        if self.plugin.gone:
            return f"the device plugin of {self.name} is gone"
        return "" if self.listed else f"the device plugin of {self.name} has not listed its devices yet"

    def health(self, id_: str) -> str:
        if not self.ready:
            return UNKNOWN
        device = self.pool.get(id_)
        return HEALTHY if device is not None and device.healthy else UNHEALTHY

    def healths(self, ids: Iterable[str]) -> list[dict[str, str]]:
        return [{"resourceID": id_, "health": self.health(id_)} for id_ in ids]

"""The devices of a node, kept in line with it."""

from collections.abc import AsyncIterator

from podwire.dradriver.inventory.link_watch import Following
from podwire.dradriver.inventory.listing import Listing


class Inventory(Listing):
    """A listing that looks for itself. Whoever has held devices before tells so (`hold`) before it runs."""

    async def run(self) -> None:
        """Until cancelled; in the network namespace that it was opened in, unless that has a path."""
        await Following(self).run()

    def changes(self) -> AsyncIterator[None]:
        """`async for _ in inventory.changes()`: at once, and whenever devices or their health are others."""
        return self.subscribers.changes()

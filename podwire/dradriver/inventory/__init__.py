"""What a node has to offer: its links as devices, in slices that everybody can read."""

from podwire.dradriver.inventory.config import Config, Shared
from podwire.dradriver.inventory.health import Health
from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.inventory.publisher import Publisher

__all__ = ["Config", "Health", "Inventory", "Publisher", "Shared"]

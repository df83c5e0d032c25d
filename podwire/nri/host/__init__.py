"""The runtime's chair of NRI: lets plugins in, tells them what happens, and merges what they want changed."""

from podwire.nri.host.creating import Adjusted
from podwire.nri.host.host import Host
from podwire.nri.host.ports import Node
from podwire.nri.host.settings import Settings

__all__ = ["Adjusted", "Host", "Node", "Settings"]

"""Between a runtime and its plugins: bytes pass as they are, and what they say is told."""

from podwire.nri.proxy.exchange import Exchange, Noted, Seen
from podwire.nri.proxy.relay import Proxy
from podwire.nri.proxy.summary import Summary
from podwire.nri.proxy.watching import Watcher

__all__ = ["Exchange", "Noted", "Proxy", "Seen", "Summary", "Watcher"]

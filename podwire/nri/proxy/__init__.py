"""Between a runtime and its plugins: bytes pass as they are, and what they say is told."""

from podwire.nri.proxy.decoder import Decoder
from podwire.nri.proxy.exchange import Exchange, Noted, Seen
from podwire.nri.proxy.proxy import Proxy
from podwire.nri.proxy.summary import Summary

__all__ = ["Decoder", "Exchange", "Noted", "Proxy", "Seen", "Summary"]

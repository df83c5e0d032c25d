"""A proxy between a runtime and its plugins that decodes what passes."""

from podwire.nri.proxy.decoder import Decoder
from podwire.nri.proxy.exchange import Exchange, Noted, Seen
from podwire.nri.proxy.proxy import Proxy
from podwire.nri.proxy.summary import Summary

__all__ = ["Decoder", "Exchange", "Noted", "Proxy", "Seen", "Summary"]

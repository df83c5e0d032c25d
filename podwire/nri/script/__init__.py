"""Scripts of the tools: YAML that is read strictly, and messages of NRI as people write and read them."""

from podwire.nri.script.nodes import At, BadScript, load
from podwire.nri.script.plain import message_at, to_plain

__all__ = ["At", "BadScript", "load", "message_at", "to_plain"]

"""Scripts of the tools: strict YAML, and NRI messages in a readable form."""

from podwire.nri.script.nodes import At, BadScript, load
from podwire.nri.script.plain import message_at, to_plain

__all__ = ["At", "BadScript", "load", "message_at", "to_plain"]

"""NRI, the Node Resource Interface: plugins that a container runtime asks at every step of a pod's life.

`nri_pb2` are its messages, `methods` its calls, `events` what a plugin may subscribe to, `names` who a plugin may be,
`batches` how a node that is too large for one message is told. No I/O; no chair has one of its own here.
"""

from podwire.protocols.nri.events import ALL, Event, Subscription

VERSION = "v0.12.2"
"""The version of NRI that is spoken; peers read features from it."""

__all__ = ["ALL", "VERSION", "Event", "Subscription"]

"""NRI, the Node Resource Interface: plugins that a container runtime asks at every step of a pod's life.

`nri_pb2` are its messages, `methods` its calls, `events` what a plugin may subscribe to, `names` who a plugin may be,
`batches` how a node that is too large for one message is sent, `merge` and `updates` what several plugins' answers
become together, `owners` who decided what, `checks` what no answer may say, `oci` what that makes of a container's
config.json, `validation` the built-in validator, `required` which plugins a pod must not start without. No I/O; no
side has one of its own here.
"""

from podwire.protocols.nri.events import ALL, Event, Subscription

VERSION = "v0.12.2"
"""The version of NRI that is spoken; peers read features from it."""

__all__ = ["ALL", "VERSION", "Event", "Subscription"]

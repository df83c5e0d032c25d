"""The acts of the demo: one for each flow."""

from podwire.cluster.demo.acts.act import Act
from podwire.cluster.demo.acts.all import acts

__all__ = ["Act", "acts"]

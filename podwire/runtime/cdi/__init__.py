"""CDI, the Container Device Interface: devices by name, described in files that device plugins put on the node."""

from podwire.runtime.cdi.names import BadDevice
from podwire.runtime.cdi.registry import Registry, links_of

__all__ = ["BadDevice", "Registry", "links_of"]

"""Controllers: workloads, garbage collection, namespaces, nodes, evictions, claims for devices. Speaks: k8sapi."""

from podwire.controllers.informer import MetadataInformer
from podwire.controllers.manager import run
from podwire.controllers.ports import Absent, Complete, Feed, Present

__all__ = ["Absent", "Complete", "Feed", "MetadataInformer", "Present", "run"]

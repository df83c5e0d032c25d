"""Keeps what should follow from other objects: namespaces, service accounts, owners. Speaks: k8sapi."""

from podwire.controllers.informer import WatchedFeed
from podwire.controllers.manager import run
from podwire.controllers.ports import Absent, Api, Complete, Feed, Present

__all__ = ["Absent", "Api", "Complete", "Feed", "Present", "WatchedFeed", "run"]

"""Keeps what should follow from other objects: namespaces, service accounts, owners. Speaks: k8sapi."""

from podwire.controllers.feed import WatchedFeed
from podwire.controllers.ports import Absent, Api, Complete, Feed, Present
from podwire.controllers.run import run

__all__ = ["Absent", "Api", "Complete", "Feed", "Present", "WatchedFeed", "run"]

"""A tour of a running API server with the real kubectl, in a temporary place of its own."""

from podwire.cluster.demo.kubectl import NoKubectl
from podwire.cluster.demo.play import Closing, Failed, Played, Scene, play
from podwire.cluster.demo.stage import NotUp

__all__ = ["Closing", "Failed", "NoKubectl", "NotUp", "Played", "Scene", "play"]

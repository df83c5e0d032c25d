"""What podwire does, shown with the real kubectl in a temporary place of its own."""

from podwire.cluster.demo.play import Act, play
from podwire.cluster.demo.scenes import Closing, Failed, Played, Scene
from podwire.cluster.demo.stops import Stops

__all__ = ["Act", "Closing", "Failed", "Played", "Scene", "Stops", "play"]

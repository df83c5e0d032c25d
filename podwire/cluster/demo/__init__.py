"""What podwire does, shown with the real kubectl in a temporary place of its own."""

from podwire.cluster.demo.play import Wish, play, play_api
from podwire.cluster.demo.scenes import Closing, Opening, Played, Scene

__all__ = ["Closing", "Opening", "Played", "Scene", "Wish", "play", "play_api"]

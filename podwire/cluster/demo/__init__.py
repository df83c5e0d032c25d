"""The demo: a cluster in a temporary directory, driven by the real kubectl."""

from podwire.cluster.demo.play import DemoOptions, play, play_api
from podwire.cluster.demo.step_runner import ActStarted, StepFinished, StepStarted, Summary

__all__ = ["ActStarted", "DemoOptions", "StepFinished", "StepStarted", "Summary", "play", "play_api"]

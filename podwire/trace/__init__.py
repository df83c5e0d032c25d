"""What passed between the participants: recorded at the seams, collected, told as the story of one pod."""

from podwire.trace.collector import Collector
from podwire.trace.record import Record
from podwire.trace.recorder import Recorder

__all__ = ["Collector", "Record", "Recorder"]

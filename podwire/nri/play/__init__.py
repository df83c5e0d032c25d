"""A runtime that plays the lives of pods to a plugin: no root, no containers, and the real wire.

`reading` makes a script of YAML, `world` holds pods and containers as a runtime would describe them, `player` acts them
out with the host of `nri/host`, `judging` compares what was seen with what was expected, `report` tells it.
"""

from podwire.nri.play.player import Failed, Result, play
from podwire.nri.play.plugin import How
from podwire.nri.play.script import Script
from podwire.nri.play.yaml_script import read_script

__all__ = ["Failed", "How", "Result", "Script", "play", "read_script"]

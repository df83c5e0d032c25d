"""A simulated runtime that plays the lifecycle of pods to a plugin: no root, no containers, the real protocol.

`yaml_script` reads scripts, `node` has pods and containers as a runtime describes them, `player` runs the steps with
the `Adaptation`, `expectations` compares outcomes, `report` prints them.
"""

from podwire.nri.play.player import Failed, Result, play
from podwire.nri.play.plugin import How
from podwire.nri.play.script import Script
from podwire.nri.play.yaml_script import read_script

__all__ = ["Failed", "How", "Result", "Script", "play", "read_script"]

"""A plugin that does what a script says, also what no plugin should: a peer to test a runtime with."""

from podwire.nri.fake.plugin import FakePlugin, Leaves
from podwire.nri.fake.script import Script
from podwire.nri.fake.yaml_script import read_script

__all__ = ["FakePlugin", "Leaves", "Script", "read_script"]

"""A scripted plugin for tests of runtimes; it can also do what no plugin should."""

from podwire.nri.fake.plugin import FakePlugin, Leaves
from podwire.nri.fake.script import Script
from podwire.nri.fake.yaml_script import read_script

__all__ = ["FakePlugin", "Leaves", "Script", "read_script"]

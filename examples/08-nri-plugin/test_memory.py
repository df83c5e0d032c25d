"""The same script as a test."""

import sys
from pathlib import Path

pytest_plugins = ["podwire.nri.play.fixture"]

HERE = Path(__file__).parent


def test_memory_follows_the_annotation(nri_play):
    result = nri_play(HERE / "script.yaml", [sys.executable, HERE / "plugin.py"])
    assert result.step("create web/app").adjust.linux.resources.memory.limit.value == 256 << 20

"""Plays with a scripted plugin."""

import sys

import pytest

pytest_plugins = ["podwire.nri.play.fixture"]

FAKE = (sys.executable, "-m", "podwire.cli.main", "nri", "fake-plugin")


@pytest.fixture
def fake(tmp_path):
    """The command of a fake plugin with this script."""

    def command(script: str = "", *flags: str) -> list[str]:
        path = tmp_path / "fake.yaml"
        path.write_text(script)
        return [*FAKE, str(path), *flags]

    return command

"""Plays with a scripted plugin."""

import sys

import pytest

from podwire.nri.play.fixture import nri_play  # noqa: F401 - a fixture is there where it is imported

FAKE = (sys.executable, "-m", "podwire.cli.main", "nri", "fake-plugin")


PATIENT = "\nruntime: {registration_timeout: 60s, request_timeout: 60s, synchronize_timeout: 60s}\n"
"""The machine may have other things to do."""


@pytest.fixture
def played(nri_play):  # noqa: F811 - the fixture of that name
    """Play a script, patiently unless it says otherwise."""

    def play(script, argv, **more):
        text = script or ""
        return nri_play(text if "runtime:" in text else f"{text}{PATIENT}", argv, **more)

    return play


@pytest.fixture
def fake(tmp_path):
    """The command of a fake plugin with this script."""

    def command(script: str = "", *flags: str) -> list[str]:
        path = tmp_path / "fake.yaml"
        path.write_text(script)
        return [*FAKE, str(path), *flags]

    return command

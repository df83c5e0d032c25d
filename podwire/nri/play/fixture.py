"""`nri_play` for pytest: play a script to a plugin inside a test.

    pytest_plugins = ["podwire.nri.play.fixture"]              # in conftest.py

    def test_my_plugin(nri_play):
        result = nri_play("script.yaml", ["./my-plugin"])      # fails the test when an expectation does
        assert result.step("create web/app").adjust.env[0].key == "COLOR"

A script is a path, YAML itself, or the values of YAML; None is the life of one pod. What was played and what the plugin
printed is shown when the test fails.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from podwire.nri.play import How, Result, Script, play, read_script, report
from podwire.protocols.nri.names import from_file

ScriptSource = str | Path | Mapping[str, Any] | None


class NriPlay(Protocol):
    """The type of the fixture."""

    def __call__(
        self, script: ScriptSource, argv: Sequence[str | os.PathLike[str]], *, launch: str = "", check: bool = True
    ) -> Result:
        """Play it; `launch` NN-NAME starts the plugin as a pre-installed one.

        Raises Failed unless `check` is false, BadScript.
        """
        ...


@pytest.fixture
def nri_play(tmp_path: Path) -> NriPlay:
    """Plays scripts to plugins; see podwire/nri/play/fixture.py."""

    def played(
        script: ScriptSource, argv: Sequence[str | os.PathLike[str]], *, launch: str = "", check: bool = True
    ) -> Result:
        read = _read(script)
        with (tmp_path / "plugin-output").open("ab") as output:
            how = How(
                argv=[os.fspath(argument) for argument in argv],
                launch=from_file(launch) if launch else None,
                output=output.fileno(),
            )
            result = asyncio.run(play(read, how, lambda done: print(*report.lines(done), sep="\n")))  # noqa: T201 - pytest shows it
        sys.stdout.write((tmp_path / "plugin-output").read_text(encoding="utf-8", errors="replace"))
        if check:
            result.check()
        return result

    return played


def _read(script: ScriptSource) -> Script:
    if script is None:
        return read_script("")
    if isinstance(script, Mapping):
        return read_script(yaml.safe_dump(dict(script), sort_keys=False), "script")
    if isinstance(script, Path) or ("\n" not in script and script.endswith((".yaml", ".yml"))):
        return read_script(Path(script).read_text(encoding="utf-8"), str(script))
    return read_script(script)

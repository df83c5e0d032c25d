"""Texts filled in and written, all of them or none."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template

from podwire.protocols.nri.names import BadName, plugin_id

_TEXTS = {"plugin.py": "plugin.txt", "test_plugin.py": "test_plugin.txt", "README.md": "readme.txt"}
_PROGRAM = "plugin.py"


class BadStarter(ValueError):
    """A plugin that cannot be begun so; says why."""


def files(name: str, index: str, *, python: str = sys.executable) -> dict[str, str]:
    """Each file's text. Raises BadStarter."""
    try:
        me = plugin_id(index, name)
    except BadName as error:
        raise BadStarter(str(error)) from error
    if not python.startswith("/") or re.search(r"\s", python):
        # A runtime starts plugins without PATH, and a first line ends at the first space.
        raise BadStarter(f"{python!r} cannot stand in a program's first line")
    words = {"name": me.name, "index": me.index, "class_name": class_name(name), "python": python}
    here = Path(__file__).parent
    return {
        file: Template((here / text).read_text(encoding="utf-8")).substitute(words) for file, text in _TEXTS.items()
    }


def class_name(name: str) -> str:
    """my-plugin.v2 is MyPluginV2; a name that begins no name of Python gets a word before it."""
    joined = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", name))
    return joined if joined[:1].isalpha() and joined != "Plugin" else f"My{joined}"


def write(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    """The paths that were written. Raises BadStarter when one is there already, OSError."""
    paths = {directory / file: text for file, text in texts.items()}
    if there := [str(path) for path in paths if path.exists() or path.is_symlink()]:
        raise BadStarter(f"{', '.join(there)}: there already; nothing was written")
    directory.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        if path.name == _PROGRAM:
            path.chmod(0o755)
    return list(paths)

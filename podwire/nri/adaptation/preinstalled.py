"""Pre-installed plugins: what lies in the folder, and what is configured for each."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from podwire.protocols.nri.names import BadName, PluginId, from_file

_WASM = b"\0asm"


@dataclass(frozen=True, slots=True)
class PreinstalledPlugin:
    """A program that is a plugin."""

    plugin: PluginId
    path: Path


def find(folder: Path) -> tuple[list[PreinstalledPlugin], list[str]]:
    """Plugins in the order in which they are asked, and what is wrong with the other files.

    containerd does not start at all when a file there is badly named. Here that file is left out with an error in the
    log: a stray file must not take a whole node away, and who needs a plugin says so with required_plugins, which fails
    closed whatever the reason of its absence is. A folder that is not there is an empty one, as in containerd.
    """
    found, problems = [], []
    try:
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{folder}: {error.strerror}"]
    for path in files:
        try:
            found.append(PreinstalledPlugin(_checked(path), path))
        except BadName as error:
            problems.append(f"{path}: {error}")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    return sorted(found, key=lambda each: each.plugin), problems


def _checked(path: Path) -> PluginId:
    """Raises BadName, OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise BadName("is no regular file")
    plugin = from_file(path.name)
    if not os.access(path, os.X_OK):
        raise BadName("is not executable")
    with path.open("rb") as file:
        if file.read(len(_WASM)) == _WASM:
            raise BadName("WebAssembly plugins are not run here")
    return plugin


def configuration_of(plugin: PluginId, folder: Path | None) -> str:
    """The text of NN-NAME.conf or else NAME.conf, as it is; empty when there is none. Raises OSError, UnicodeError."""
    if folder is None:
        return ""
    for name in (f"{plugin}.conf", f"{plugin.name}.conf"):
        try:
            return (folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
    return ""

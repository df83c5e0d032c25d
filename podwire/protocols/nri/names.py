"""The identity of a plugin: a two-digit index that orders plugins, and a name."""

import re
from dataclasses import dataclass

_INDEX = re.compile(r"[0-9]{2}")
_NAME = re.compile(r"[A-Za-z0-9_.+-]+")


class BadName(ValueError):
    """A plugin's name or index that is none; says which field and why."""


@dataclass(frozen=True, slots=True, order=True)
class PluginId:
    """A plugin; they are asked in this order."""

    index: str
    name: str

    def __str__(self) -> str:
        return f"{self.index}-{self.name}"

    def is_meant_by(self, wanted: str) -> bool:
        """Whether a list of required plugins means this one: `name` or `NN-name`."""
        return wanted in (self.name, str(self))


def plugin_id(index: str, name: str) -> PluginId:
    """Raises BadName."""
    if not _INDEX.fullmatch(index):
        raise BadName(f"plugin_idx: {index!r} is not two digits")
    if not _NAME.fullmatch(name):
        raise BadName(f"plugin_name: {name!r} has other characters than letters, digits and _.+-, or none")
    return PluginId(index, name)


def from_file(name: str) -> PluginId:
    """A pre-installed plugin by its file: NN-NAME. Raises BadName."""
    index, dash, rest = name.partition("-")
    if not dash:
        raise BadName(f"{name!r}: a plugin's file is called NN-NAME, two digits first")
    return plugin_id(index, rest)

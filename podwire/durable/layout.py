"""Where the files of a record store are, and what else lies among them."""

import os
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from podwire.linux import errors

QUARANTINED = ".damaged"
"""Suffix of the name of a damaged file; a second one of the same key gets a number, too."""
_QUARANTINED_NAME = re.compile(rf"(.+){re.escape(QUARANTINED)}(\.\d+)?")


class Layout(NamedTuple):
    """Where the file of a key is. Keys are names of files: a store with other keys quotes them (urllib.parse.quote).

    Layout()                     DIRECTORY/KEY.json
    Layout(suffix="")            DIRECTORY/KEY
    Layout(depth=2)              DIRECTORY/PART/PART.json for the key `PART/PART`; PART's directory goes with its last
    Layout(file="record.json")   DIRECTORY/KEY/record.json; the directory is removed with the record, whatever is in it
    """

    suffix: str = ".json"
    file: str = ""
    depth: int = 1

    def relative(self, key: str) -> str:
        """The path below the store's directory. ValueError for a key that would lead elsewhere."""
        parts = key.split("/")
        if len(parts) != self.depth or any(not part or part.startswith(".") or "\0" in part for part in parts):
            raise ValueError(f"{key!r} is not a key: it must have {self.depth} parts, and none may begin with a dot")
        return f"{key}/{self.file}" if self.file else key + self.suffix


class Entry(NamedTuple):
    """A file below the store's directory."""

    key: str
    path: str
    quarantined: bool = False
    foreign: str = ""
    """Why it is neither a record nor a quarantined one."""


def list_entries(directory: str, layout: Layout, ignore: Collection[str] = ()) -> Iterator[Entry]:
    """All files; names that begin with a dot are temporary files and locks, and are left out."""
    for entry in scan(directory) if layout.depth > 1 else ():
        if entry.name not in ignore and not entry.is_dir(follow_symlinks=False):
            yield Entry(entry.name, entry.path, foreign="is not a directory")
    for parent, prefix in list(_parents(directory, layout.depth)):
        for entry in scan(parent):
            if entry.name in ignore:
                continue
            if not layout.file:
                yield _classified(entry, prefix, layout.suffix)
            elif entry.is_dir(follow_symlinks=False):
                key = prefix + entry.name
                files = (_classified(inner, "", layout.file) for inner in scan(entry.path))
                yield from (file._replace(key=key) for file in files if not file.key)
            else:
                yield Entry(prefix + entry.name, entry.path, foreign="is not a directory")


def _classified(entry: "os.DirEntry[str]", prefix: str, suffix: str) -> Entry:
    name = _QUARANTINED_NAME.fullmatch(entry.name)
    stem = name[1] if name else entry.name
    key = prefix + stem.removesuffix(suffix)
    if not name and not stem.endswith(suffix):
        return Entry(key, entry.path, foreign=f"does not end with {suffix}")
    if not entry.is_file(follow_symlinks=False):
        return Entry(key, entry.path, foreign="is not a regular file")
    return Entry(key, entry.path, quarantined=name is not None)


def _parents(directory: str, depth: int, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The directories that hold the last parts of keys, each with the key's earlier parts."""
    if depth == 1:
        yield directory, prefix
        return
    for entry in scan(directory):
        if entry.is_dir(follow_symlinks=False):
            yield from _parents(entry.path, depth - 1, f"{prefix}{entry.name}/")


def key_directories(directory: str, layout: Layout) -> list[str]:
    """The directories of keys, of a layout that gives each key its own."""
    entries = [entry for parent, _ in _parents(directory, layout.depth) for entry in scan(parent)]
    return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def directories(directory: str, layout: Layout) -> list[str]:
    """The store's directory and all below it that can hold records or temporary files."""
    found = [directory] if os.path.isdir(directory) else []
    for depth in range(1, layout.depth):
        found += [parent for parent, _ in _parents(directory, depth + 1)]
    return found + (key_directories(directory, layout) if layout.file else [])


def scan(directory: str) -> list["os.DirEntry[str]"]:
    """The entries that do not begin with a dot, sorted; none when the directory does not exist."""
    try:
        with os.scandir(directory) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise errors.from_oserror(error, f"list {directory}") from error

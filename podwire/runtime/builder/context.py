"""The context of a build: the files of one directory, without those that are ignored, and nothing outside of it."""

import hashlib
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from podwire.linux.errors import LinuxError, NoSuchPath
from podwire.linux.fs.paths import open_in_root
from podwire.linux.fs.regular_files import read_head
from podwire.protocols.containerfile.ignore import LONGEST, BadPattern, IgnorePatterns, translate
from podwire.runtime.builder.errors import StepFailed
from podwire.runtime.images.limits import Limits

IGNORE_FILES = (".containerignore", ".dockerignore")
_WILDCARDS = re.compile(r"[*?\[]")
_KINDS = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a FIFO", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or symbolic link of the context: where it lies, and its path below what is copied."""

    path: str
    below: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


@dataclass(frozen=True, slots=True)
class Source:
    """One source of COPY with all that is below it; `is_directory`: its content is copied, not itself."""

    path: str
    is_directory: bool
    entries: tuple[Entry, ...]


def read_ignore_file(containerfile: Path, directory: Path) -> IgnorePatterns:
    """Returns the patterns beside the Containerfile (`NAME.dockerignore`), or those of the context. Raises OSError."""
    named = [containerfile.with_name(containerfile.name + suffix) for suffix in IGNORE_FILES]
    for path in (*named, *(directory / name for name in IGNORE_FILES)):
        with suppress(NoSuchPath):
            data = read_head(path, LONGEST + 1, follow=True)
            if len(data) > LONGEST:
                raise BadPattern(f"{path}: has more than {LONGEST} bytes")
            try:
                return IgnorePatterns(data.decode().splitlines())
            except (BadPattern, UnicodeDecodeError) as error:
                raise BadPattern(f"{path}: {error}") from error
    return IgnorePatterns()


class Context:
    """The files that COPY sees. Symbolic links are resolved with the directory as `/`: none leads out of it."""

    def __init__(self, directory: Path, ignore: IgnorePatterns, limits: Limits | None = None) -> None:
        self.directory = directory
        self._ignore = ignore
        self._limits = limits or Limits()
        self._root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

    def open(self, path: str) -> int:
        """Opens a regular file, and not what it links to. Raises StepFailed."""
        return self._open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)

    def read_link(self, path: str) -> str:
        link = self._open(path, os.O_PATH | os.O_NOFOLLOW)
        try:
            return os.readlink(b"", dir_fd=link).decode("utf-8", "surrogateescape")
        finally:
            os.close(link)

    def find(self, source: str) -> list[Source]:
        """Returns what a source of COPY names; several for a pattern. Raises StepFailed."""
        path = posixpath.normpath("/" + source).lstrip("/")
        if ".." in source.split("/"):
            raise StepFailed(f"{source[:200]}: leads out of the context {self.directory}")
        paths = [path] if not _WILDCARDS.search(path) else self._matching(path)
        sources = [self._source(path) for path in paths if not path or not self._ignore.ignores(path)]
        if not sources:
            ignored = any(self._ignore.ignores(path) for path in paths if path)
            why = "is left out by the ignore file" if ignored else "no such file in the context"
            raise StepFailed(f"{source[:200]}: {why} {self.directory}")
        return sources

    def digest(self, sources: Sequence[Source]) -> str:
        """Returns a digest of what is copied: names, kinds, modes and content; no times and no owners."""
        whole = hashlib.sha256()
        for source in sources:
            whole.update(repr((source.path.rpartition("/")[2], source.is_directory)).encode())
            for entry in source.entries:
                mode = entry.status.st_mode
                content = ""
                if stat.S_ISLNK(mode):
                    content = self.read_link(entry.path)
                elif stat.S_ISREG(mode):
                    content = self._content_digest(entry.path)
                whole.update(repr((entry.below, mode, content)).encode())
        return whole.hexdigest()

    def _content_digest(self, path: str) -> str:
        descriptor = self.open(path)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _matching(self, pattern: str) -> list[str]:
        """Returns the paths that match, part by part, so that * stays within a directory."""
        found = [""]
        for part in pattern.split("/"):
            expression = re.compile(translate(part, across=False))
            found = [
                f"{directory}/{name}".lstrip("/")
                for directory in found
                for name in self._names(directory)
                if expression.fullmatch(name)
            ]
        return found

    def _names(self, directory: str) -> list[str]:
        try:
            descriptor = self._open(directory or ".", os.O_RDONLY | os.O_DIRECTORY)
        except StepFailed:
            return []
        try:
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - a descriptor has no path
        finally:
            os.close(descriptor)

    def _source(self, path: str) -> Source:
        descriptor = self._open(path or ".", os.O_PATH)  # a link that is named itself is followed
        try:
            status = os.fstat(descriptor)
            where = Path(f"/proc/self/fd/{descriptor}").readlink()
        finally:
            os.close(descriptor)
        resolved = str(where.relative_to(Path(f"/proc/self/fd/{self._root}").readlink()))
        resolved = "" if resolved == "." else resolved
        if stat.S_ISDIR(status.st_mode):
            entries = tuple(self._below(resolved, ""))
            return Source(path, is_directory=True, entries=entries)
        if not stat.S_ISREG(status.st_mode):
            raise StepFailed(f"{path[:200]}: is {_KINDS.get(stat.S_IFMT(status.st_mode), 'not a file')}")
        return Source(path, is_directory=False, entries=(Entry(resolved, path.rpartition("/")[2], status),))

    def _below(self, directory: str, below: str) -> Iterator[Entry]:
        """Walks a directory, in the order of names; parents come before what is in them."""
        count = 0
        waiting = [(directory, below)]
        while waiting:
            directory, below = waiting.pop()
            deeper = []
            for name in self._names(directory):
                path, inside = f"{directory}/{name}".lstrip("/"), f"{below}/{name}".lstrip("/")
                status = self._status(path)
                ignored = self._ignore.ignores(path)
                is_directory = stat.S_ISDIR(status.st_mode)
                if ignored and not (is_directory and self._ignore.takes_back):
                    continue
                count += 1
                if count > self._limits.entries:
                    raise StepFailed(f"the context has more than {self._limits.entries} files")
                if kind := _KINDS.get(stat.S_IFMT(status.st_mode)):
                    raise StepFailed(f"{path[:200]}: is {kind}, which cannot be copied; the ignore file can name it")
                if not ignored:
                    yield Entry(path, inside, status)
                if is_directory:
                    deeper.append((path, inside))
            waiting.extend(reversed(deeper))

    def _status(self, path: str) -> os.stat_result:
        descriptor = self._open(path, os.O_PATH | os.O_NOFOLLOW)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _open(self, path: str, flags: int) -> int:
        try:
            return open_in_root(self._root, path, flags | os.O_CLOEXEC)
        except LinuxError as error:
            raise StepFailed(f"{path[:200]}: {error.strerror or error} in the context {self.directory}") from error

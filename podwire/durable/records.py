"""Records: one small value per key, each in a file of its own (or an append log of its own).

A file is one line, an append log is several; the newest whole line is the record. A line is an envelope around what
the store's codec makes of the value, so that JSON stays readable with `jq`:

    {"format":2,"checksum":"9ab3c2d1","record":{...}}

The checksum is the CRC-32 of `FORMAT:RECORD`. Reading a key does exactly one of these:

| at the path                              | what happens                                                              |
|------------------------------------------|---------------------------------------------------------------------------|
| nothing                                  | `get` returns None                                                        |
| a whole line of this format              | the value                                                                 |
| a whole line of an older format          | `migrate(format, record)`; the next `put` writes the current format       |
| a file without envelopes                 | `migrate(0, file)`: the state of the time before envelopes                |
| a line of a newer format                 | NewerFormat; the file is not touched, neither by `put` nor by `remove`    |
| torn last lines of an append log         | the newest whole line before them                                         |
| anything else in a regular file          | quarantined: renamed to `NAME.damaged`, reported once; `get` returns None |
| a symlink, directory, socket, other name | ignored and reported once; `get` and `put` there fail with WrongKind      |
| a file that cannot be read (EIO, EACCES) | `get` raises LinuxError; `load` reports it and goes on                    |

Values are cached by inode, size and modification time, so that reading again costs one stat(2) and another process's
write is seen; they must be immutable. Methods block, and can be called from several threads. Two writers of one key
leave one of their values, whole; a store that needs more (read, decide, write) holds a lock (durable.locks,
tasks.KeyedLocks).

Programs that live for milliseconds import this: no pathlib, logging or msgspec at import.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar
from zlib import crc32

from podwire.durable import append_log, files
from podwire.durable.files import Durability
from podwire.durable.layout import QUARANTINED, Entry, Layout, directories, key_directories, list_entries
from podwire.linux import errors
from podwire.linux.values import Path

T = TypeVar("T")

MAX_QUARANTINED = 4
"""Damaged files that are kept of one key; the first ones, because they are nearest to the cause."""
MAX_RECORD = 4 << 20
"""Bytes of one record."""

_ENVELOPE = re.compile(rb'\{"format":(\d{1,9}),"checksum":"([0-9a-f]{8})","record":')
_DAMAGED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors that codecs, migrations and checks raise for data that is not a record."""
_ATTEMPTS = 16
"""How often the directory of a key is made again that another thread or process removes with its last record."""
_FOREIGN, _DAMAGED_KIND, _UNREADABLE = "foreign", "damaged", "unreadable"


class NewerFormat(Exception):
    """The state was written by a newer podwire. This one cannot know what it would destroy, so it changes nothing."""

    def __init__(self, format_: int, supported: int = 0, path: str = "") -> None:
        super().__init__(
            f"{path or 'a record'} was written by a newer podwire (format {format_}; this one supports up to "
            f"{supported}); upgrade podwire, or remove the file if what it describes no longer exists"
        )
        self.format, self.supported, self.path = format_, supported, path


class Codec(NamedTuple, Generic[T]):
    """How a value becomes bytes without newlines, and back. `decode` raises ValueError for what is not one."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]


class Problem(NamedTuple):
    """A file that is not a record that can be used."""

    kind: str
    """`damaged`: it was quarantined at `path`; `foreign`: it was ignored; `unreadable`: reading it failed."""
    key: str
    path: str
    error: str


class _Seen(NamedTuple, Generic[T]):
    """The value of a file when its stat had this signature."""

    signature: tuple[int, int, int]
    value: T
    old: bool
    """It is of an older format, so that it is replaced rather than appended to."""


class Records(Generic[T]):
    """All records of one kind."""

    def __init__(
        self,
        directory: Path,
        codec: Codec[T],
        *,
        format: int,  # noqa: A002 - the word that the file uses
        migrate: Callable[[int, bytes], T] | None = None,
        layout: Layout = Layout(),  # noqa: B008 - immutable
        append: bool = False,
        check: Callable[[str, T], None] | None = None,
        report: Callable[[Problem], None] | None = None,
        ignore: Collection[str] = (),
        discard_empty: bool = False,
        mode: int = 0o600,
        directory_mode: int = 0o700,
    ) -> None:
        """`migrate` reads older formats, and 0 for files without envelope; it raises NewerFormat(n) or ValueError.

        `check(key, value)` raises ValueError for a value that does not belong to its key. `ignore` names files of the
        directory that belong to the store and are not records; so do all names that begin with a dot. `discard_empty`
        removes empty files instead of quarantining them, for stores that write with PROCESS_DEATH: an empty file is
        what a power loss leaves of such a write.
        """
        self._directory, self._codec, self._layout = os.fspath(directory), codec, layout
        self._format, self._migrate, self._check = format, migrate, check
        self._append, self._discard_empty = append, discard_empty
        self._report, self._ignore = report or _log, frozenset(ignore)
        self._mode, self._directory_mode = mode, directory_mode
        self._seen: dict[str, _Seen[T]] = {}
        self._reported: set[tuple[str, str]] = set()

    def path(self, key: str) -> str:
        return f"{self._directory}/{self._layout.relative(key)}"

    # Reading

    def get(self, key: str) -> T | None:
        """The record; None when there is none, or when it was damaged (see `quarantined`). NewerFormat, LinuxError."""
        path = self.path(key)
        seen = self._read(key, path)
        return None if seen is None else seen.value

    def load(self) -> dict[str, T]:
        """All records that can be read, by key, sorted. NewerFormat."""
        loaded = {}
        for key in self.keys():
            try:
                value = self.get(key)
            except errors.LinuxError as error:
                self._tell(Problem(_UNREADABLE, key, self.path(key), str(error)))
                continue
            if value is not None:
                loaded[key] = value
        return loaded

    def keys(self, parent: str = "") -> list[str]:
        """The keys that have a file, readable or not, sorted; with `parent`, the first part of keys of two, only those
        below it, for which no other directory is read."""
        if not parent:
            return sorted(entry.key for entry in self._entries() if not entry.quarantined)
        below = self._layout._replace(depth=self._layout.depth - 1)
        entries = list_entries(f"{self._directory}/{parent}", below, self._ignore)
        return sorted(f"{parent}/{entry.key}" for entry in entries if not entry.quarantined and not entry.foreign)

    def quarantined(self) -> dict[str, list[str]]:
        """Paths of damaged files by key, the first damaged first."""
        paths: dict[str, list[str]] = {}
        for entry in self._entries():
            if entry.quarantined:
                paths.setdefault(entry.key, []).append(entry.path)
        return {key: sorted(paths[key]) for key in sorted(paths)}

    def discard_quarantined(self, key: str) -> None:
        """Remove the damaged files of a key, durably."""
        for path in self.quarantined().get(key, []):
            files.remove_durably(path)

    # Writing

    def put(self, key: str, value: T, durability: Durability = Durability.POWER_LOSS) -> None:
        """Make this the record. A failed write leaves the earlier record. NewerFormat, OutOfResources, LinuxError.

        CREATION is cheaper than POWER_LOSS only for append logs; a file that is replaced without fsync could be empty
        after a power loss.
        """
        body, path = self._codec.encode(value), self.path(key)
        if b"\n" in body or len(body) > MAX_RECORD:
            raise ValueError(f"the record of {key} must be one line of at most {MAX_RECORD} bytes")
        line = b'{"format":%d,"checksum":"%08x","record":%s}' % (self._format, self._checksum(self._format, body), body)
        seen = self._read(key, path)
        self._seen.pop(key, None)
        appends = self._append and seen is not None and not seen.old
        durable = durability is not Durability.PROCESS_DEATH or (seen is not None and self._append)
        written: os.stat_result | None
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                if appends:
                    written = append_log.put(path, line, mode=self._mode)
                else:
                    written = files.write_file(path, line, self._mode, durable=durable)
                break
            except errors.NoSuchPath:
                if not attempts_left:
                    raise
                self._make_parents(path, durable=durable)
            except errors.LinuxError:
                self._remove_empty_parents(path, with_own=True)
                raise
        if appends and durability is Durability.POWER_LOSS:
            self.fsync(key)
        if written is not None:
            self._seen[key] = _Seen(_signature(written), value, old=False)

    def fsync(self, key: str) -> None:
        """Make the record as it is now survive a power loss, with the directories that lead to it."""
        path = self.path(key)
        files.fsync_file(path)
        try:
            for parent in self._parents(path)[1:]:
                files.fsync_directory(parent)
        except OSError as error:
            raise errors.from_oserror(error, f"write {path}") from error

    def remove(self, key: str, durability: Durability = Durability.POWER_LOSS) -> None:
        """Remove the record, if there is one; with POWER_LOSS it stays removed. NewerFormat, LinuxError.

        The record goes before the rest of its directory: a crash leaves a directory without a record, for `sweep`.
        """
        path = self.path(key)
        if self._unchanged(key, path) is None:
            self._refuse_newer(key, path)
        self._seen.pop(key, None)
        if durability is Durability.PROCESS_DEATH:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise errors.from_oserror(error, f"remove {path}") from error
        else:
            files.remove_durably(path)
        if self._layout.file:
            _remove_tree(os.path.dirname(path))
        self._remove_empty_parents(path)

    def sweep(self) -> None:
        """Remove what killed writers left: temporary files, and directories without a record, damaged or not.

        Only while no other thread or process writes here.
        """
        if self._layout.file:
            used = {os.path.dirname(entry.path) for entry in self._entries()}
            for directory in key_directories(self._directory, self._layout):
                if directory not in used:
                    _remove_tree(directory)
        for directory in directories(self._directory, self._layout):
            files.sweep(directory)

    # Files

    def _read(self, key: str, path: str) -> _Seen[T] | None:
        seen = self._unchanged(key, path)
        if seen is not None:
            return seen
        self._seen.pop(key, None)
        try:
            data, signature = _contents(path)
            if not data and self._discard_empty:
                files.remove_durably(path)
                return None
            value, old = self._decoded(key, path, data)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except _DAMAGED as error:
            self._quarantine(key, path, str(error) or type(error).__name__)
            return None
        seen = self._seen[key] = _Seen(signature, value, old)
        return seen

    def _unchanged(self, key: str, path: str) -> _Seen[T] | None:
        """The cached value, if the file has not been written since."""
        seen = self._seen.get(key)
        with suppress(OSError):
            if seen is not None and seen.signature == _signature(os.lstat(path)):
                return seen
        return None

    def _decoded(self, key: str, path: str, data: bytes) -> tuple[T, bool]:
        """The newest whole line, and whether its format is old. NewerFormat; ValueError and the like when damaged."""
        torn = False
        for line in reversed(data.split(b"\n")):
            envelope = _ENVELOPE.match(line)
            if envelope is None:
                continue
            format_, body = int(envelope[1]), line[envelope.end() : -1]
            if format_ > self._format:
                raise NewerFormat(format_, self._format, path)
            if line[-1:] != b"}" or int(envelope[2], 16) != self._checksum(format_, body):
                torn = True
                continue
            return self._checked(key, path, format_, body), format_ != self._format
        if torn:
            raise ValueError("checksum mismatch")
        return self._checked(key, path, 0, data), True

    def _checked(self, key: str, path: str, format_: int, body: bytes) -> T:
        if format_ == self._format:
            value = self._codec.decode(body)
        elif self._migrate is None:
            raise ValueError(f"format {format_} is not supported" if format_ else "is not a record")
        else:
            try:
                value = self._migrate(format_, body)
            except NewerFormat as newer:
                raise NewerFormat(newer.format, newer.supported or self._format, path) from None
        if self._check is not None:
            self._check(key, value)
        return value

    def _checksum(self, format_: int, body: bytes) -> int:
        return crc32(body, crc32(b"%d:" % format_))

    def _refuse_newer(self, key: str, path: str) -> None:
        """A record that was not read yet can be of a newer format; anything else may be removed."""
        with suppress(FileNotFoundError, NotADirectoryError, errors.WrongKind, *_DAMAGED):
            self._decoded(key, path, _contents(path)[0])

    def _quarantine(self, key: str, path: str, error: str) -> None:
        """Rename a damaged file without replacing another one; when there are enough, remove it."""
        for number in range(MAX_QUARANTINED):
            aside = path + QUARANTINED + (f".{number}" if number else "")
            try:
                os.link(path, aside, follow_symlinks=False)
            except FileExistsError:
                if not os.path.samefile(path, aside):  # else a crash came between this link and the unlink below
                    continue
            except OSError as failed:
                raise errors.from_oserror(failed, f"quarantine {path}") from failed
            files.remove_durably(path)
            self._tell(Problem(_DAMAGED_KIND, key, aside, error))
            return
        files.remove_durably(path)
        self._tell(Problem(_DAMAGED_KIND, key, path, f"{error}; removed, because {MAX_QUARANTINED} are kept already"))

    def _parents(self, path: str) -> list[str]:
        """The directories of a file, from its own up to that of the store."""
        parents = [os.path.dirname(path)]
        while len(parents[-1]) > len(self._directory):
            parents.append(os.path.dirname(parents[-1]))
        return parents

    def _make_parents(self, path: str, *, durable: bool) -> None:
        missing = []
        parent = os.path.dirname(path)
        while parent and not os.path.isdir(parent):
            missing.append(parent)
            parent = os.path.dirname(parent)
        for directory in reversed(missing):
            try:
                with suppress(FileExistsError, FileNotFoundError):  # others make and remove directories, too
                    os.mkdir(directory, self._directory_mode)
                    if durable or len(directory) <= len(self._directory):
                        files.fsync_directory(os.path.dirname(directory) or ".")
            except OSError as error:
                raise errors.from_oserror(error, f"create {directory}") from error

    def _remove_empty_parents(self, path: str, *, with_own: bool = False) -> None:
        """Below the store's directory; a directory that others have filled again stays."""
        parents = self._parents(path)[:-1]
        with suppress(OSError):
            for parent in parents if with_own or not self._layout.file else parents[1:]:
                os.rmdir(parent)

    def _entries(self) -> Iterator[Entry]:
        """Records and quarantined files. Reports foreign files."""
        for entry in list_entries(self._directory, self._layout, self._ignore):
            if entry.foreign:
                self._tell(Problem(_FOREIGN, entry.key, entry.path, entry.foreign))
            else:
                yield entry

    def _tell(self, problem: Problem) -> None:
        """Report a problem once; a file that is damaged again later is another problem."""
        if problem.kind != _DAMAGED_KIND:
            if (problem.kind, problem.path) in self._reported:
                return
            self._reported.add((problem.kind, problem.path))
        self._report(problem)


def _contents(path: str) -> tuple[bytes, tuple[int, int, int]]:
    """All of a regular file. FileNotFoundError, WrongKind, LinuxError; ValueError for one that is too long."""
    limit = 2 * (MAX_RECORD + append_log.MAX_BYTES)
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        names: errors.Names = {errno.ELOOP: errors.WrongKind, errno.ENXIO: errors.WrongKind}
        raise errors.from_oserror(error, f"read {path}", names) from error
    try:
        now = os.fstat(file)
        if not stat.S_ISREG(now.st_mode):
            raise errors.WrongKind(errno.EINVAL, f"read {path}", "it is not a regular file")
        if now.st_size > limit:
            raise ValueError(f"is longer than {limit} bytes")
        parts = []
        while part := os.read(file, limit):
            parts.append(part)
            if sum(map(len, parts)) > limit:
                raise ValueError(f"is longer than {limit} bytes")
        return b"".join(parts), _signature(now)
    except OSError as error:
        raise errors.from_oserror(error, f"read {path}") from error
    finally:
        os.close(file)


def _signature(now: os.stat_result) -> tuple[int, int, int]:
    """Changes with every write."""
    return now.st_ino, now.st_size, now.st_mtime_ns


def _remove_tree(directory: str) -> None:
    from podwire.linux.fs.trees import remove_path  # noqa: PLC0415 - only some stores need it

    with suppress(OSError):  # a mount point in it is not crossed; `sweep` tries again
        remove_path(directory)


_MESSAGES = {
    _DAMAGED_KIND: "quarantined damaged record",
    _FOREIGN: "ignored foreign file among records",
    _UNREADABLE: "cannot read record file",
}


def _log(problem: Problem) -> None:
    import logging  # noqa: PLC0415 - heavy, and needed when something is wrong

    fields = {"key": problem.key, "path": problem.path, "error": problem.error}
    logging.getLogger("podwire.durable").log(
        logging.INFO if problem.kind == _FOREIGN else logging.ERROR, _MESSAGES[problem.kind], extra=fields
    )

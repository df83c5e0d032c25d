"""Lines of a container's log as CRI runtimes write them, and the options of readers. Pure.

`<RFC 3339> <stdout|stderr> <P|F>[:…] <text>`: P marks a partial line.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from podwire.objects import times
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import bad_request

LONGEST_RECORD = 1024**2
"""Bytes without a line break that are kept in memory. Runtimes write records of 16 KiB at most."""
STREAMS: Mapping[str, bytes] = {"": b"", "All": b"", "Stdout": b"stdout", "Stderr": b"stderr"}
_TRUE, _FALSE = ("", "1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a log request."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    """Seconds since the epoch."""
    limit: int | None = None
    """Bytes of the response."""
    stream: bytes = b""
    """stdout or stderr; both when empty."""


def options_of(request: Request, now: float) -> LogOptions:
    """The options of a query. Raises ApiError, which names the invalid one."""
    stream = request.option("stream")
    if stream not in STREAMS:
        raise bad_request(f'stream: Unsupported value: "{stream}": supported values: "All", "Stderr", "Stdout"')
    tail = _number(request, "tailLines", least=0)
    if tail is not None and STREAMS[stream]:
        raise bad_request("tailLines: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now")
    return LogOptions(
        follow=_flag(request, "follow"),
        previous=_flag(request, "previous"),
        timestamps=_flag(request, "timestamps"),
        tail=tail,
        since=_since(request, now),
        limit=_number(request, "limitBytes", least=1),
        stream=STREAMS[stream],
    )


def _since(request: Request, now: float) -> float | None:
    seconds, moment = _number(request, "sinceSeconds", least=1), request.option("sinceTime")
    if seconds is not None and moment:
        raise bad_request("sinceTime: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified")
    if not moment:
        return None if seconds is None else now - seconds
    try:
        return times.parse(moment)
    except ValueError as error:
        raise bad_request(f"sinceTime: Invalid value: {error}") from error


def _number(request: Request, name: str, *, least: int) -> int | None:
    text = request.option(name)
    if not text:
        return None
    if not (text.lstrip("-").isdecimal() and text.isascii() and len(text) < 20):
        raise bad_request(f'{name}: Invalid value: "{text[:40]}": must be a number')
    if int(text) < least:
        raise bad_request(f"{name}: Invalid value: {text}: must be greater than {'or equal to 0' if not least else 0}")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    values = request.query.get(name)
    if not values or values[0] in _FALSE:
        return False
    if values[0] in _TRUE:
        return True
    raise bad_request(f'{name}: Invalid value: "{values[0][:40]}": must be true or false')


def ends_line(record: bytes) -> bool:
    """Whether a record is the end of a line; anything that is not a record ends one, too."""
    return not _partial(record.split(b" ", 3)[2:3])


def _partial(tags: list[bytes]) -> bool:
    return bool(tags) and tags[0].partition(b":")[0] == b"P"


class Renderer:
    """Renders records for a reader, chunk by chunk."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._streams = (options.stream,) if options.stream else (b"stdout", b"stderr")
        self._left = options.limit
        self._rest = b""
        self._at_start = True

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self._left == 0

    def feed(self, data: bytes) -> bytes:
        """Renders bytes; an incomplete record is kept until the rest comes."""
        records = (self._rest + data).split(b"\n")
        self._rest = records.pop()
        if len(self._rest) > LONGEST_RECORD:  # not a log: nothing of it would be shown
            self._rest = b""
        shown = b"".join(piece for record in records for piece in self._render(record))
        if self._left is not None:
            shown = shown[: self._left]
            self._left -= len(shown)
        return shown

    def _render(self, record: bytes) -> tuple[bytes, ...]:
        """The pieces of a record; none if it is filtered out or invalid."""
        parts = record.split(b" ", 3)
        options = self._options
        if len(parts) < 3 or parts[1] not in self._streams:
            return ()
        moment = parts[0]
        if options.since is not None and not _at_or_after(moment, options.since):
            return ()
        head = moment + b" " if options.timestamps and self._at_start else b""
        self._at_start = not _partial(parts[2:3])
        return (head, *parts[3:], b"\n" if self._at_start else b"")


def _at_or_after(moment: bytes, since: float) -> bool:
    try:
        return times.parse(moment.decode("ascii", "replace")) >= since
    except ValueError:
        return False

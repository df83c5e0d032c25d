"""Reads the termination message of a container: from its file, or from the end of its log. Both are untrusted."""

from pathlib import Path

from podwire.linux.fs.regular_files import read_head, read_tail
from podwire.objects.containers import Container

MESSAGE_BYTES, POD_BYTES = 4096, 12 * 1024
"""Of one container, and of all containers of a pod together."""
LOG_BYTES, LOG_LINES = 2048, 80


def read(container: Container, file: Path, log: str, exit_code: int, *, containers: int = 1) -> str:
    """At most 4 KiB of the file; if that is empty after a failure, the end of the log, with FallbackToLogsOnError.

    `containers` is the number of containers of the pod, which share 12 KiB.
    """
    most = min(MESSAGE_BYTES, POD_BYTES // max(1, containers))
    message = _head(file, most)
    if message or container.termination_message_policy != "FallbackToLogsOnError" or exit_code == 0:
        return message
    return _tail(Path(log), most) if log else ""


def _head(file: Path, most: int) -> str:
    try:
        return _text(read_head(file, most), most)
    except OSError:
        return ""


def _text(data: bytes, most: int) -> str:
    """Each invalid byte becomes a character of three bytes; the limit holds for the result, too."""
    return data.decode(errors="replace").encode()[:most].decode(errors="ignore")


def _tail(log: Path, most: int) -> str:
    """The text of the last lines. A log line is `TIME STREAM TAG TEXT`; the tag P marks a partial line."""
    try:
        data, complete = read_tail(log, 4 * LOG_BYTES)
    except OSError:
        return ""
    lines = data.splitlines()
    whole = lines if complete else lines[1:]  # the first one is incomplete
    parts = [line.split(b" ", 3) for line in whole[-LOG_LINES:]]
    text = b"".join(part[3] + (b"" if part[2] == b"P" else b"\n") for part in parts if len(part) == 4)
    return _text(text[-LOG_BYTES:], min(most, LOG_BYTES))

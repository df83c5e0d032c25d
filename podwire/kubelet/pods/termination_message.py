"""Reads the termination message of a container: from its file, or from the end of its log."""

from pathlib import Path

from podwire.objects.containers import Container

MESSAGE_BYTES = 4096
LOG_BYTES, LOG_LINES = 2048, 80


def read(container: Container, file: Path, log: str, exit_code: int) -> str:
    """At most 4 KiB of the file; if that is empty after a failure, the end of the log, with FallbackToLogsOnError."""
    message = _head(file)
    if message or container.termination_message_policy != "FallbackToLogsOnError" or exit_code == 0:
        return message
    return _tail(Path(log)) if log else ""


def _head(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MESSAGE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _tail(log: Path) -> str:
    """The text of the last lines. A log line is `TIME STREAM TAG TEXT`; the tag P marks a partial line."""
    try:
        with log.open("rb") as opened:
            size = opened.seek(0, 2)
            start = opened.seek(max(0, size - 4 * LOG_BYTES))
            lines = opened.read().splitlines()
    except OSError:
        return ""
    whole = lines[1:] if start else lines  # the first one is incomplete
    parts = [line.split(b" ", 3) for line in whole[-LOG_LINES:]]
    text = b"".join(part[3] + (b"" if part[2] == b"P" else b"\n") for part in parts if len(part) == 4)
    return text[-LOG_BYTES:].decode(errors="replace")

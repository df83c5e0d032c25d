"""What a container says when it ends: its termination message, from the file it was given or the end of its log."""

from pathlib import Path

from podwire.objects.containers import Container

MESSAGE_BYTES = 4096
LOG_BYTES, LOG_LINES = 2048, 80


def message_file(root: Path, uid: str, container: str, attempt: int) -> Path:
    """Where the container finds its terminationMessagePath on the host."""
    return root / "pods" / uid / "containers" / container / str(attempt)


def read(container: Container, file: Path, log: str, exit_code: int) -> str:
    """At most 4 KiB of the file; without one, and after a failure, the end of the log if that is wanted."""
    told = _head(file)
    if told or container.termination_message_policy != "FallbackToLogsOnError" or exit_code == 0:
        return told
    return _tail(Path(log)) if log else ""


def _head(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MESSAGE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _tail(log: Path) -> str:
    """The text of the last lines; each log line is `TIME STREAM TAG TEXT`."""
    try:
        with log.open("rb") as opened:
            opened.seek(0, 2)
            opened.seek(max(0, opened.tell() - 4 * LOG_BYTES))
            lines = opened.read().splitlines()[-LOG_LINES:]
    except OSError:
        return ""
    text = b"\n".join(line.split(b" ", 3)[-1] for line in lines)
    return text[-LOG_BYTES:].decode(errors="replace")

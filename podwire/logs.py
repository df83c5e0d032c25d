"""Structured logs: text for people, JSON by flag. Facts go in `extra`, ids are bound once with `about`."""

import contextlib
import contextvars
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

_bound: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("podwire_log_bound")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextlib.contextmanager
def about(**facts: Any) -> Iterator[None]:
    """Bind facts (pod=…, claim=…) to every record that is logged inside."""
    token = _bound.set({**_bound.get({}), **facts})
    try:
        yield
    finally:
        _bound.reset(token)


def bound(name: str) -> Any:
    """What `about` was told of that name; None outside of it."""
    return _bound.get({}).get(name)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return {**_bound.get({}), **own}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class TextFormatter(logging.Formatter):
    """`12:00:00.123 info  apiserver  serving  address=127.0.0.1:6443`"""

    def format(self, record: logging.LogRecord) -> str:
        room = record.name.removeprefix("podwire.")
        facts = "".join(f"  {key}={_plain(value)}" for key, value in _facts(record).items())
        line = f"{_time(record)[11:-1]} {record.levelname.lower():7} {room}: {record.getMessage()}{facts}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(value: Any) -> str:
    """One word of one line, whatever it holds: a client's text moves no cursor and begins no line of its own."""
    text = str(value)
    if not text.isprintable():
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False) if not text or any(each in text for each in ' "=') else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, room, message, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix("podwire."),
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(*, level: str = "info", form: str = "text", stream: TextIO = sys.stderr) -> None:
    """Log to `stream`; called once by a program's main, never by a room."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())

"""Structured logs: text for people, JSON by flag. Fields go in `extra`; `about` binds ids for a block."""

import contextlib
import contextvars
import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

LEVEL = "PODWIRE_LOG_LEVEL"
"""Set by `podwire up --log-level`, for all components of the cluster."""

_bound: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("podwire_log_bound")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextlib.contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Binds fields (pod=…, claim=…) to every record that is logged inside."""
    token = _bound.set({**_bound.get({}), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def bound(name: str) -> Any:
    """Returns the field that `about` bound; None outside of it."""
    return _bound.get({}).get(name)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return {**_bound.get({}), **own}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class TextFormatter(logging.Formatter):
    """`12:00:00.123 info  apiserver  serving  address=127.0.0.1:6443`"""

    def format(self, record: logging.LogRecord) -> str:
        component = record.name.removeprefix("podwire.")
        fields = "".join(f"  {key}={_plain(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)[11:-1]} {record.levelname.lower():7} {component}: {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(value: Any) -> str:
    """Escapes a value into one word: untrusted text cannot move the cursor or start a line of its own."""
    text = str(value)
    if not text.isprintable():
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False) if not text or any(character in text for character in ' "=') else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, component, message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "component": record.name.removeprefix("podwire."),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(*, level: str = "", form: str = "text", stream: TextIO = sys.stderr) -> None:
    """Log to `stream`; called once by a program's main, never by a component. The default level is `LEVEL`, or info."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel((level or os.environ.get(LEVEL) or "info").upper())

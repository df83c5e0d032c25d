"""Input of clients cannot disguise itself as log lines."""

import io
import json
import logging

import pytest

from podwire.logs import JsonFormatter, TextFormatter

HOSTILE = ["a\nb", "a\rb", "\x1b[2J", "\x00", "\u2028", "\u202e", "\udcff", "a b", 'a"b', "a=b", "", "\u00e9"]


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_a_fact_stays_one_printable_word_of_one_line(formatter, value):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    record = logging.makeLogRecord({"name": "podwire.x", "msg": "message", "levelname": "INFO", "path": value})
    stream.write(formatter.format(record))
    line = stream.buffer.getvalue().decode()
    assert line.isprintable()
    assert len(line.splitlines()) == 1


def test_a_plain_fact_stays_plain():
    record = logging.makeLogRecord({"name": "podwire.x", "msg": "message", "levelname": "INFO", "path": "/api/\u00e9"})
    assert TextFormatter().format(record).endswith("path=/api/\u00e9")
    assert json.loads(JsonFormatter().format(record))["path"] == "/api/\u00e9"

"""Renders a pod trace as one HTML file: the diagram, and the content of each call. Pure.

The page loads nothing and sends nothing. All text is escaped; in addition, the content security policy allows only the
script whose hash it names.
"""

import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from podwire.trace.phases import parts, phases
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import Arrow, PodTrace, Turn, moments
from podwire.trace.record import Record
from podwire.trace.svg import Picture
from podwire.trace.wording import headline, milliseconds

_FOLDER = Path(__file__).parent / "page"
MOST_DETAILS = 4 << 20
"""Bytes of all details together; of the rest only the size is shown."""


def html(
    trace: PodTrace, records: Iterable[Record], whole: PodTrace | None = None, most_details: int = MOST_DETAILS
) -> str:
    """Returns the page. For a part of a trace, `whole` has the times."""
    css, script = style() + _file("style.css"), _file("script.js")
    picture = Picture(trace)
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(css, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(headline(trace))}</title>\n"
        f"<style>{css}</style></head><body>\n"
        f"<header><h1>{_escaped(headline(trace))}</h1>\n<p>{_about(trace)}</p>\n{_sums(whole or trace)}</header>\n"
        f"{_TOOLS}"
        f'<main class="scroll">\n{picture.head()}{"".join(picture.pieces())}</main>\n'
        f"{_PANEL}"
        f'<script type="application/json" id="records">{_data(_details(trace, records, most_details))}</script>\n'
        f"<script>{script}</script>\n</body></html>\n"
    )


def style() -> str:
    """Returns the style of the picture itself, for pages and files that show it."""
    return _file("picture.css")


def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


_TOOLS = """\
<div class="tools" hidden><button data-does="smaller" title="smaller">&minus;</button>\
<button data-does="larger" title="larger">+</button><button data-does="whole">1:1</button>\
<button data-does="fit">fit</button> click an arrow to see what it carried; ↑ and ↓ go on from there</div>
"""
_PANEL = """\
<aside id="detail" hidden><button data-does="close" title="close">&times;</button><h2></h2><pre></pre></aside>
"""


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _about(trace: PodTrace) -> str:
    began = datetime.fromtimestamp(trace.begin, UTC).isoformat(sep=" ", timespec="milliseconds")
    return _escaped(f"{began} · {len(trace.arrows)} arrows · trace {trace.pod}")


def _sums(trace: PodTrace) -> str:
    """Returns two small tables of phases and parts."""
    whole = trace.took or 0.0
    phase_rows = [(phase.name, phase.seconds) for phase in phases(trace)]
    part_rows = [(f"{part.name} ({part.calls})", part.seconds) for part in parts(trace)]
    tables = [
        _table(head, rows, whole) for head, rows in (("phase", phase_rows), ("of which (calls)", part_rows)) if rows
    ]
    return f'<div class="sums">{"".join(tables)}</div>\n' if tables else ""


def _table(head: str, rows: list[tuple[str, float]], whole: float) -> str:
    drawn = "".join(
        f"<tr><td>{_escaped(name)}</td><td>{milliseconds(seconds)}</td><td>{_share(seconds, whole)}</td></tr>"
        for name, seconds in rows
    )
    return f"<table><thead><tr><th>{head}</th><th></th><th></th></tr></thead><tbody>{drawn}</tbody></table>"


def _share(seconds: float, whole: float) -> str:
    share = min(1.0, seconds / whole) if whole > 0 else 0.0
    return f'<svg class="share" width="120" height="9"><rect class="share" width="{120 * share:.1f}" height="9"/></svg>'


def _details(trace: PodTrace, records: Iterable[Record], remaining: int) -> dict[int, Any]:
    """Returns the content of each arrow by its row; arrows that a user typed have none."""
    by_arrow = {(record.id, record.time, _turn(record)): record for record in records}
    details: dict[int, Any] = {}
    for number, moment in enumerate(moments(trace)):
        record = by_arrow.get((moment.id, moment.time, moment.turn)) if isinstance(moment, Arrow) else None
        if record is None:
            continue
        shown = msgspec.to_builtins(record)
        size = len(_data(shown))
        if size > remaining:
            shown["detail"] = {"cut": size}
        remaining -= min(size, remaining)
        details[number] = shown
    return details


def _turn(record: Record) -> Turn:
    return Turn.CALL if record.begins else Turn.EVENT if record.is_event else Turn.REPLY


def _data(value: Any) -> str:
    """Returns JSON that is safe inside HTML."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _escaped(text: str) -> str:
    return escape(plain(text))

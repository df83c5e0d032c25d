"""A start as a file: SVG, HTML, Mermaid or JSON; the browser makes the PNG from the SVG. Pure."""

import re
from collections.abc import Collection, Sequence

import msgspec

from podwire.trace.html import html, style
from podwire.trace.mermaid import mermaid
from podwire.trace.pod_trace import PodTrace
from podwire.trace.record import Record
from podwire.trace.svg import Picture
from podwire.web.start_view import drawn

FORMATS = {
    "svg": ("image/svg+xml", "svg"),
    "html": ("text/html; charset=utf-8", "html"),
    "mermaid": ("text/plain; charset=utf-8", "mmd"),
    "json": ("application/json", "json"),
}
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


def download(
    trace: PodTrace, records: Sequence[Record], form: str, hidden: Collection[str] = ()
) -> tuple[bytes, str, str]:
    """Returns the content, its type, and the name of the file."""
    shown = drawn(trace, hidden)
    if form == "svg":
        text = Picture(shown).whole(style())
    elif form == "html":
        text = html(shown, records, trace)
    elif form == "mermaid":
        text = mermaid(shown)
    else:
        text = msgspec.json.encode(records).decode()
    kind, suffix = FORMATS[form]
    return (
        text.encode("utf-8", "replace"),
        kind,
        f"{_UNSAFE.sub('_', f'{trace.namespace}-{trace.name}')[:100]}.{suffix}",
    )

"""The files of the page, and the headers of every answer. Pure, after the files were read once."""

from pathlib import Path

from podwire.protocols.k8sapi.server_side import Response
from podwire.trace.html import style

_FOLDER = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only our own files run and style the page; pictures may also come from the page itself, for the PNG."""
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
INDEX = "index.html"


class Assets:
    """All files of the page, in memory: a request names one of them, never a path."""

    def __init__(self) -> None:
        self._files = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}
        self._files["picture.css"] = style().encode()

    def answer(self, name: str, *headers: tuple[str, str]) -> Response | None:
        body = self._files.get(name)
        if body is None:
            return None
        kind = f"{_TYPES[Path(name).suffix]}; charset=utf-8"
        return Response(status=200, body=body, content_type=kind, headers=(*HEADERS, *headers))

"""Error bodies of a registry, made short and safe to show."""

import msgspec

LONGEST = 300
"""Characters of a registry's own words that are shown."""
BODY = 16 << 10
"""Bytes of an error body that are read."""


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []
    details: str = ""


def describe_error(status: int, body: bytes) -> str:
    """Returns `404: MANIFEST_UNKNOWN: manifest unknown`, or the status alone when the body is not a registry's."""
    try:
        parsed = msgspec.json.decode(body, type=_Errors)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        parsed = _Errors()
    words = [": ".join(filter(None, (error.code, error.message))) for error in parsed.errors] or [parsed.details]
    text = "".join(letter for letter in "; ".join(filter(None, words)) if letter.isprintable())[:LONGEST]
    return f"{status}: {text}" if text else str(status)

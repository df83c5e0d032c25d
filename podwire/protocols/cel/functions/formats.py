"""The format library: names and values that Kubernetes knows, and what is wrong with a text that is none."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime

from podwire.objects import names
from podwire.protocols.cel.functions.urls import parse_url
from podwire.protocols.cel.types import FORMAT, STRING, Function, Opaque, list_of

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[tT]\d{2}:\d{2}:\d{2}(\.\d+)?([zZ]|[+-]\d{2}:\d{2})", re.ASCII)


class Format(str):
    """A format by its name; the empty one is none."""

    __slots__ = ()


def _uri(text: str) -> list[str]:
    try:
        parse_url(text)
    except ValueError as error:
        return [str(error).removeprefix("URL parse error during conversion from string: ")]
    return []


def _base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(text) from None


def _uuid(text: str) -> None:
    if not _UUID.fullmatch(text):
        raise ValueError(text)


def _date(text: str) -> None:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    date.fromisoformat(text)


def _datetime(text: str) -> None:
    if not _TIME.fullmatch(text):
        raise ValueError(text)
    datetime.fromisoformat(text.upper())


def _read_by(read: Callable[[str], None], sentence: str) -> Callable[[str], list[str]]:
    def check(text: str) -> list[str]:
        try:
            read(text)
        except ValueError:
            return [sentence]
        return []

    return check


FORMATS: Mapping[str, Callable[[str], list[str]]] = {
    "byte": _read_by(_base64, "invalid base64"),
    "date": _read_by(_date, "invalid date"),
    "datetime": _read_by(_datetime, "invalid datetime"),
    "dns1035Label": names.dns1035_label,
    "dns1035LabelPrefix": names.as_prefix(names.dns1035_label),
    "dns1123Label": names.dns_label,
    "dns1123LabelPrefix": names.as_prefix(names.dns_label),
    "dns1123Subdomain": names.dns_subdomain,
    "dns1123SubdomainPrefix": names.as_prefix(names.dns_subdomain),
    "labelValue": names.label_value,
    "qualifiedName": names.qualified_name,
    "uri": _uri,
    "uuid": _read_by(_uuid, "does not match the UUID format"),
}


def named(name: str) -> Format:
    return Format(name if name in FORMATS else "")


def validate(format_: Format, text: str) -> list[str]:
    return FORMATS[format_](text)


def _constant(name: str) -> Function:
    return Function(f"format.{name}", (), FORMAT, lambda: Format(name), member=False)


OPAQUE = Opaque(FORMAT, (Format,), str, Format)

FUNCTIONS = (
    *map(_constant, FORMATS),
    Function("format.named", (STRING,), FORMAT, named, member=False, optional=True),
    Function("validate", (FORMAT, STRING), list_of(STRING), validate, optional=True),
)

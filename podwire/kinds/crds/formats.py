"""Formats that a schema may ask of strings. One that is not known here asks for nothing, as upstream has it."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from urllib.parse import urlsplit

from podwire.objects import names
from podwire.objects.times import parse

Test = Callable[[str], object]

_UUID = "[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_LONGEST = 4_096
"""No value of any format is longer, but for base64."""


def _matches(pattern: str) -> Test:
    return re.compile(pattern, re.IGNORECASE | re.ASCII).fullmatch


def _made_by(make: Callable[[str], object]) -> Test:
    def test(text: str) -> bool:
        try:
            make(text)
        except ValueError:
            return False
        return True

    return test


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _uri(text: str) -> bool:
    """Returns whether a text is an absolute URI or an absolute path."""
    if any(character <= " " or character == "\x7f" for character in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _date(text: str) -> bool:
    return len(text) == 10 and bool(_made_by(date.fromisoformat)(text))


_TESTS: Mapping[str, Test] = {
    "bsonobjectid": _matches("[0-9a-f]{24}"),
    "cidr": lambda text: "/" in text and _made_by(lambda each: ipaddress.ip_network(each, strict=False))(text),
    "date": _date,
    "date-time": _made_by(parse),
    "datetime": _made_by(parse),
    "duration": _matches(r"[-+]?0|[-+]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+|\d+ *[a-zµ]+"),
    "email": _matches(r"[^@\s]+@[^@\s]+"),
    "hexcolor": _matches("#?([0-9a-f]{3}|[0-9a-f]{6})"),
    "hostname": _matches(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.?"),
    "ipv4": _made_by(ipaddress.IPv4Address),
    "ipv6": _made_by(ipaddress.IPv6Address),
    "k8s-long-name": lambda text: not names.dns_subdomain(text),
    "k8s-short-name": lambda text: not names.dns_label(text),
    "mac": _matches("([0-9a-f]{2}([:-][0-9a-f]{2}){5,7})|([0-9a-f]{4}(\\.[0-9a-f]{4}){2,3})"),
    "uri": _uri,
    "uuid": _matches(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _matches(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _matches(_UUID % ("4", "[89ab]")),
    "uuid5": _matches(_UUID % ("5", "[89ab]")),
}


def test_of(name: str) -> Test | None:
    """Returns the test of a format; None when any string will do."""
    if name == "byte":
        return _base64
    test = _TESTS.get(name)
    return None if test is None else lambda text: len(text) <= _LONGEST and test(text)

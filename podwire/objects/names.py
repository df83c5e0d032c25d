"""Validation of names. A check returns the problems as sentences; an empty list means valid.

The sentences are part of the API: people read them, tests of clients match them.
"""

import ipaddress
import re
from collections.abc import Callable
from random import Random

Check = Callable[[str], list[str]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_C_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_PERCENT = "[0-9]+%"
_HEADER = "[-A-Za-z0-9]+"

_LEADING_ZEROS = re.compile(r"\b0+(?=\d)")
_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_label_1035 = re.compile(_LABEL_1035).fullmatch
_is_qualified = re.compile(_QUALIFIED).fullmatch
_is_config_key = re.compile(_CONFIG_KEY).fullmatch
_is_c_identifier = re.compile(_C_IDENTIFIER).fullmatch
_is_percent = re.compile(_PERCENT).fullmatch
_is_header = re.compile(_HEADER).fullmatch
_is_port_charset = re.compile("[-a-z0-9]+").fullmatch
_is_env_var = re.compile("[ -<>-~]+").fullmatch
_is_prefix_length = re.compile("[0-9]{1,9}").fullmatch

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
SEGMENT_LENGTH = 4096
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and look-alikes, so that no suffix reads as a word or is misread."""
SUFFIX_LENGTH = 5
EMPTY = "must be non-empty"


def too_long(length: int, unit: str = "characters") -> str:
    return f"must be no more than {length} {unit}"


def must_match(rule: str, pattern: str, *examples: str) -> str:
    """The sentence for a text that does not match; `e.g.` and commas fall where upstream has them."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


_NOT_LABEL = must_match(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_NOT_SUBDOMAIN = must_match(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_NOT_LABEL_1035 = must_match(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_NOT_QUALIFIED = must_match(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_NOT_LABEL_KEY = (
    f"a valid label key {_NOT_QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_NOT_LABEL_VALUE = must_match(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_NOT_CONFIG_KEY = must_match(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_NOT_C_IDENTIFIER = must_match(
    "a valid C identifier must start with alphabetic character or '_', "
    "followed by a string of alphanumeric characters or '_'",
    _C_IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)
_NOT_PERCENT = must_match(
    "a valid percent string must be a numeric string followed by an ending '%'", _PERCENT, "1%", "93%"
)
_NOT_HEADER = must_match("a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name")
_NOT_ENV_VAR = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def dns_label(text: str) -> list[str]:
    """RFC 1123 label: namespaces, containers, most parts of other names."""
    if len(text) <= LABEL_LENGTH and _is_label(text):
        return []
    problems = [too_long(LABEL_LENGTH)] if len(text) > LABEL_LENGTH else []
    if not _is_label(text):
        problems.append("must not contain dots" if _is_subdomain(text) else _NOT_LABEL)
    return problems


def dns_subdomain(text: str) -> list[str]:
    """RFC 1123 subdomain: the names of most objects."""
    if len(text) <= SUBDOMAIN_LENGTH and _is_subdomain(text):
        return []
    return _judged(text, SUBDOMAIN_LENGTH, _is_subdomain(text), _NOT_SUBDOMAIN)


def dns1035_label(text: str) -> list[str]:
    return _judged(text, LABEL_LENGTH, _is_label_1035(text), _NOT_LABEL_1035)


def label_value(text: str) -> list[str]:
    if len(text) <= LABEL_LENGTH and (not text or _is_qualified(text)):
        return []
    problems = [too_long(LABEL_LENGTH, "bytes")] if len(text) > LABEL_LENGTH else []
    return problems if not text or _is_qualified(text) else [*problems, _NOT_LABEL_VALUE]


def qualified_name(text: str) -> list[str]:
    """A label or annotation key, a finalizer, an extended resource: `[subdomain/]name`."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [_NOT_LABEL_KEY]
    problems = []
    if slash and not prefix:
        problems.append(f"prefix part {EMPTY}")
    elif slash:
        problems += [f"prefix part {problem}" for problem in dns_subdomain(prefix)]
    if not name:
        problems.append(f"name part {EMPTY}")
    elif len(name) > LABEL_LENGTH:
        problems.append(f"name part {too_long(LABEL_LENGTH)}")
    if not _is_qualified(name):
        problems.append(f"name part {_NOT_QUALIFIED}")
    return problems


def config_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret, which may become a file name."""
    problems = _judged(text, SUBDOMAIN_LENGTH, _is_config_key(text), _NOT_CONFIG_KEY)
    if text in (".", ".."):
        problems.append(f"must not be '{text}'")
    elif text.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def c_identifier(text: str) -> list[str]:
    return [] if _is_c_identifier(text) else [_NOT_C_IDENTIFIER]


def env_var_name(text: str) -> list[str]:
    if not text:
        return [f"environment variable name {EMPTY}"]
    return [] if _is_env_var(text) else [_NOT_ENV_VAR]


def percent(text: str) -> list[str]:
    return [] if _is_percent(text) else [_NOT_PERCENT]


def http_header_name(text: str) -> list[str]:
    return [] if _is_header(text) else [_NOT_HEADER]


def port_name(text: str) -> list[str]:
    """An IANA service name."""
    problems = [too_long(15)] if len(text) > 15 else []
    if not _is_port_charset(text):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= character <= "z" for character in text):
        problems.append("must contain at least one letter (a-z)")
    if "--" in text:
        problems.append("must not contain consecutive hyphens")
    if text[:1] == "-" or text[-1:] == "-":
        problems.append("must not begin or end with a hyphen")
    return problems


def path_segment(text: str) -> list[str]:
    """The minimum for every name: one segment of a URL and of a store key. A longer one would not fit into
    the URL by which it could be deleted; NUL ends a key in continue tokens."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    if len(text) > SEGMENT_LENGTH:
        return [too_long(SEGMENT_LENGTH)]
    return [f"may not contain '{character}'" for character in ("/", "%", "\0") if character in text]


def ip(text: str) -> list[str]:
    address = _address(text)
    if address is None:
        if _address(_LEADING_ZEROS.sub("", text)) is not None:
            return ["must not have leading 0s"]
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if _mapped(address):
        return ["must not be an IPv4-mapped IPv6 address"]
    return []


def canonical_ip(text: str) -> list[str]:
    """An address in its one spelling, where it is a name."""
    address = _address(text)
    if address is None or _mapped(address) or str(address) == text:
        return ip(text)
    return [f'must be in canonical form ("{address}")']


def cidr(text: str) -> list[str]:
    address, _, length = text.partition("/")
    base = _address(_LEADING_ZEROS.sub("", address))
    if base is None or not _is_prefix_length(length) or int(length) > base.max_prefixlen:
        return ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]
    if length != str(int(length)) or _address(address) is None:
        return ["must not have leading 0s in IP or prefix length"]
    if _mapped(base):
        return ["must not have an IPv4-mapped IPv6 address"]
    if int(base) & ((1 << (base.max_prefixlen - int(length))) - 1):
        return ["must not have bits set beyond the prefix length"]
    return []


def is_ip(text: str) -> bool:
    return not ip(text)


def generate_name(base: str, random: Random) -> str:
    """`base` and five characters; a long base is cut so that the whole fits into a label."""
    suffix = "".join(random.choices(SUFFIX_ALPHABET, k=SUFFIX_LENGTH))
    return base[: LABEL_LENGTH - SUFFIX_LENGTH] + suffix


def as_prefix(check: Check) -> Check:
    """The check for a generateName: it may end in the dash that a suffix will follow."""

    def checked(text: str) -> list[str]:
        return check(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)

    return checked


def _judged(text: str, length: int, matches: object, sentence: str) -> list[str]:
    problems = [too_long(length)] if len(text) > length else []
    if not matches:
        problems.append(sentence)
    return problems


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if "%" in text:  # a zone names an interface of one machine, nothing that an object can say
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _mapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None

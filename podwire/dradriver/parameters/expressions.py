"""The forms of fields as CEL: an expression that is the text of what is wrong with a value, empty when nothing is.

What is wrong is said in the driver's own words. CEL cannot know all that the driver knows; what it refuses, the driver
refuses too.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from podwire.dradriver.parameters import forms, schema, texts
from podwire.dradriver.parameters.forms import Choice, Entries, Flag, Form, Group, Number, Switches, Text, Texts
from podwire.dradriver.parameters.settings import CHARACTER_DEVICES

INDEXES = "variables.indexes"
"""A list of numbers from 0, as many as the longest list has entries: CEL has no other way to count."""


class Check(NamedTuple):
    """If `wrong`, then `why`; both are CEL, and `why` is the end of a sentence that begins with the field."""

    wrong: str
    why: str


def text(words: str) -> str:
    """As a literal."""
    return json.dumps(words, ensure_ascii=False)


def listed(expressions: Iterable[str]) -> str:
    """One on each line, so that people can read the policy."""
    return "[\n" + ",\n".join(expressions) + "\n]"


def constants(values: Iterable[str | int]) -> str:
    return f"[{', '.join(text(value) if isinstance(value, str) else str(value) for value in values)}]"


def wrong_with(form: Form, value: str, at: str) -> str:
    """Returns CEL for the error of a value. `value` is CEL for the value, `at` CEL for the field's name."""
    match form:
        case Texts():
            return _list(form.most, value, at, lambda v, a: first(_text(form.parse, v), a), _repeated(form, value, at))
        case Entries():
            return _list(form.most, value, at, lambda v, a: _entry(form, v, a))
        case Switches():
            return _switches(form, value, at)
        case Group():
            return first([Check(f"type({value}) != map", text(forms.NO_OBJECT))], at)
        case _:
            return first(_checks(form, value), at)


def fields(of: Mapping[str, Form], value: str, at: str) -> str:
    """Returns CEL for the errors of an object's fields, as one text; `value` is known to be an object."""
    unknown = f"{value}.filter(k, !(k in {constants(of)})).map(k, {at} + '.' + k + {text(': ' + forms.UNKNOWN)})"
    each = [said_wrong(name, form, value, at) for name, form in of.items()]
    return f"({listed(each)}.filter(m, m != '')\n+ {unknown}).join('; ')"


def said_wrong(name: str, form: Form, value: str, at: str) -> str:
    """Of a field that may be absent or null."""
    wrong = wrong_with(form, f"{value}.{name}", f"{at} + {text('.' + name)}")
    return f"({said(value, name)} ? {wrong} : '')"


def said(value: str, name: str) -> str:
    return f"has({value}.{name}) && {value}.{name} != null"


def first(checks: Iterable[Check], at: str, otherwise: str = "''") -> str:
    """Returns CEL for the message of the first check that fails, with the field's name before it."""
    branches = "".join(f"{check.wrong} ? {at} + ': ' + {check.why} : " for check in checks)
    return f"({branches}{otherwise})"


def _checks(form: Form, value: str) -> list[Check]:
    match form:
        case Flag():
            return [Check(f"type({value}) != bool", text(forms.NO_FLAG))]
        case Number():
            return [
                Check(f"type({value}) != int", text(forms.NO_NUMBER)),
                Check(f"{value} < {form.low} || {value} > {form.high}", text(form.range)),
                *(Check(f"{value} == {number}", text(why)) for number, why in form.but.items()),
            ]
        case Choice():
            return [Check(f"!({value} in {constants(form.of)})", text(form.choices))]
        case Text():
            return _text(form.parse, value)
        case _:
            raise TypeError(form)


def _text(parse: Callable[[str], Any], value: str) -> list[Check]:
    rules = [Check(wrong.replace("@", value), text(why)) for wrong, why in _TEXTS[parse]]
    return [Check(f"type({value}) != string", text(forms.NO_TEXT)), *rules]


def _list(most: int, value: str, at: str, element: Callable[[str, str], str], otherwise: str = "") -> str:
    inner = element(f"{value}[j]", f"{at} + '[' + string(j) + ']'")
    each = f"{INDEXES}.filter(j, j < size({value})).map(j, {inner}).filter(m, m != '')"
    checks = [
        Check(f"type({value}) != list", text(forms.NO_LIST)),
        Check(f"size({value}) > {most}", text(forms.at_most(most))),
    ]
    joined = f"{each}.join('; ')"
    return first(checks, at, f"(size({each}) > 0 ? {joined} : {otherwise})" if otherwise else joined)


def _repeated(form: Texts, value: str, at: str) -> str:
    """Of addresses, which are the same whatever their prefix is. Other lists may say something twice."""
    if form.parse is not texts.interface:
        return "''"
    first_of = f"{value}.map(a, string(cidr(a).ip())).indexOf(string(cidr({value}[j]).ip()))"
    again = f"{INDEXES}.filter(j, j < size({value}) && {first_of} < j)"
    name = text(f": {forms.AGAIN} addresses[")
    return f"{again}.map(j, {at} + '[' + string(j) + ']' + {name} + string({first_of}) + '] says').join('; ')"


def _entry(form: Entries, value: str, at: str) -> str:
    missing = [f"({said(value, name)} ? '' : {at} + {text(f'.{name}: {forms.REQUIRED}')})" for name in form.required]
    inner = f"{listed([*missing, fields(form.fields, value, at)])}.filter(m, m != '').join('; ')"
    return first([Check(f"type({value}) != map", text(forms.NO_OBJECT))], at, inner)


def _switches(form: Switches, value: str, at: str) -> str:
    here = f"{at} + '[' + k + ']'"
    switch = Check(f"{value}[k] != null && type({value}[k]) != bool", text(forms.NO_FLAG))
    each = f"{value}.map(k, {first([*_text(form.parse, 'k'), switch], here)}).filter(m, m != '').join('; ')"
    checks = [
        Check(f"type({value}) != map", text(forms.NO_SWITCHES)),
        Check(f"size({value}) > {form.most}", text(forms.at_most(form.most))),
    ]
    return first(checks, at, each)


def _long(pattern: str, most: int) -> str:
    return f"!@.matches({text(pattern)}) || size(@) > {most}"


_NO_UNICAST = "!({0}.isGlobalUnicast() || {0}.isLinkLocalUnicast())"
_NETWORK = (("!isCIDR(@)", texts.NO_NETWORK), ("cidr(@).ip() != cidr(@).masked().ip()", texts.BEYOND))
_TEXTS: Mapping[Callable[[str], Any], tuple[tuple[str, str], ...]] = {
    texts.interface_name: (
        (_long(texts.NAME_PATTERN, texts.LONGEST_NAME), texts.NO_NAME),
        (f"@ in {constants(texts.RESERVED_NAMES)}", texts.RESERVED),
    ),
    texts.host_name: ((_long(texts.NAME_PATTERN, texts.LONGEST_NAME), texts.NO_LINK),),
    texts.mac: (
        (f"!@.matches({text(texts.MAC_PATTERN)})", texts.NO_OCTETS),
        (f"@.matches({text(texts.MULTICAST_MAC_PATTERN)})", texts.MULTICAST_MAC),
        (f"@ == {text(texts.NO_MAC)}", texts.NO_MAC_ADDRESS),
    ),
    texts.address: (("!isIP(@)", texts.NO_ADDRESS), (_NO_UNICAST.format("ip(@)"), texts.NOT_ONE_HOST)),
    texts.peer: (("!isIP(@)", texts.NO_PEER), ("ip(@).isUnspecified() || ip(@).isLoopback()", texts.NOBODY)),
    texts.interface: (
        ("!isCIDR(@)", texts.NO_INTERFACE),
        (_NO_UNICAST.format("cidr(@).ip()"), texts.NOT_ONE_HOST),
        ("cidr(@).prefixLength() == 0", texts.WHOLE_INTERNET),
        (
            "cidr(@).ip().family() == 4 && cidr(@).prefixLength() < 31 && cidr(@).ip() == cidr(@).masked().ip()",
            texts.NO_HOST_HAS,
        ),
    ),
    texts.network: _NETWORK,
    texts.destination: (
        *_NETWORK,
        ("cidr('224.0.0.0/4').containsCIDR(@) || cidr('ff00::/8').containsCIDR(@)", texts.NOT_ROUTED),
        ("cidr(@).prefixLength() > 0 && cidr(@).ip().isLoopback()", texts.NOT_ROUTED),
    ),
    texts.pool: ((f"@ != '' && ({_long(texts.POOL_PATTERN, texts.LONGEST_POOL)})", texts.NO_POOL),),
    schema.feature: (
        (f"@ == {text(schema.AMBIGUOUS_FEATURE)}", schema.AMBIGUOUS),
        (_long(texts.FEATURE_PATTERN, texts.LONGEST_FLAG), texts.NO_FEATURE),
    ),
    schema.character_device: ((f"!(@ in {constants(tuple(CHARACTER_DEVICES))})", schema.NO_CHARACTER_DEVICE),),
    texts.private_flag: ((f"size(@) == 0 || size(@) > {texts.LONGEST_FLAG}", texts.NO_FLAG),),
    schema.lock: ((f"!(@ in {constants(schema.PATHS)})", schema.NO_FIELD),),
}
"""For each way to read a text: what is wrong with one that is not read so, in CEL where @ is the text, and why."""

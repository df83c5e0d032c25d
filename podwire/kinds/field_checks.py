"""Checks of single values that the fields of many kinds share: choices, ranges, names, paths, addresses, labels,
conditions.

Every check appends its errors to `errors` and builds their words only then: a valid value costs a comparison.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, Problem, duplicate, forbidden, invalid, required, too_long

Object = Mapping[str, Any]
Errors = list[FieldError]
MAX_INT32 = 2**31 - 1
_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH_DOMAIN = re.compile(rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*")
_NOT_SEARCH_DOMAIN = names.must_match(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SEARCH_DOMAIN.pattern,
    "example.com",
)

IMMUTABLE = "field is immutable"
_LINK_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))
REASON_LENGTH = 1024
MESSAGE_LENGTH = 32 * 1024
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_NOT_REASON = names.must_match(
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'",
    _REASON,
    "my_name",
    "MY_NAME",
    "MyName",
    "ReasonA,ReasonB",
    "ReasonA:ReasonB",
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The values that a field may have, in the order of the error message."""

    values: tuple[str, ...]
    detail: str = field(init=False)

    def __post_init__(self) -> None:
        quoted = ", ".join(f'"{value}"' for value in self.values)
        object.__setattr__(self, "detail", f"supported values: {quoted}")

    def check(self, value: Any, path: str, errors: Errors) -> None:
        if value not in self.values:
            errors.append(FieldError(Problem.NOT_SUPPORTED, path, value, self.detail))

    def require(self, value: Any, path: str, errors: Errors) -> None:
        """As `check`, and an empty value is a missing one."""
        if value in self.values:
            return
        if not value:
            errors.append(required(path))
        else:
            errors.append(FieldError(Problem.NOT_SUPPORTED, path, value, self.detail))


def not_found(path: str, value: Any, detail: str = "") -> FieldError:
    return FieldError(Problem.NOT_FOUND, path, value, detail)


def named(check: names.Check, text: str, path: str, errors: Errors) -> None:
    """Each message that a name check has for `text`."""
    for message in check(text):
        errors.append(invalid(path, text, message))


def domain_prefixed_path(text: str, path: str, errors: Errors) -> None:
    """The name of a controller: a domain, a slash, and what its owner calls it."""
    domain, slash, rest = text.partition("/")
    if not text:
        errors.append(required(path))
    elif not slash or not domain or not rest:
        errors.append(invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        named(names.dns_subdomain, domain, path, errors)


def within(value: int, low: int, high: int, path: str, errors: Errors) -> None:
    if not low <= value <= high:
        errors.append(invalid(path, value, names.between(low, high)))


def user_id(value: int | None, path: str, errors: Errors) -> None:
    """A user's or a group's number."""
    if value is not None:
        within(value, 0, MAX_INT32, path, errors)


def non_negative(value: int, path: str, errors: Errors) -> None:
    if value < 0:
        errors.append(invalid(path, value, "must be greater than or equal to 0"))


def positive(value: int, path: str, errors: Errors) -> None:
    if value <= 0:
        errors.append(invalid(path, value, "must be greater than zero"))


def file_mode(value: int | None, path: str, errors: Errors) -> None:
    if value is not None and not 0 <= value <= 0o777:
        errors.append(invalid(path, value, "must be a number between 0 and 0777 (octal), both inclusive"))


def port_number(value: int, path: str, errors: Errors) -> None:
    within(value, 1, 65535, path, errors)


def port_or_name(value: int | str, path: str, errors: Errors) -> None:
    if isinstance(value, int):
        port_number(value, path, errors)
    else:
        named(names.port_name, value, path, errors)


def search_domain(text: str) -> list[str]:
    """Returns the problems of a DNS subdomain that may have underscores, as resolvers allow in search lists."""
    messages = [names.too_long(names.SUBDOMAIN_LENGTH)] if len(text) > names.SUBDOMAIN_LENGTH else []
    return messages if _SEARCH_DOMAIN.fullmatch(text) else [*messages, _NOT_SEARCH_DOMAIN]


def no_backsteps(text: str, path: str, errors: Errors) -> None:
    if ".." in text and ".." in text.split("/"):
        errors.append(invalid(path, text, "must not contain '..'"))


def descending(text: str, path: str, errors: Errors) -> None:
    """A relative path that never climbs."""
    if text.startswith("/"):
        errors.append(invalid(path, text, "must be a relative path"))
    no_backsteps(text, path, errors)


def local(text: str, path: str, errors: Errors) -> None:
    """A descending path whose first name is not one that atomic volume writes keep for themselves (`..data`)."""
    descending(text, path, errors)
    if text.startswith("..") and not text.startswith("../"):
        errors.append(invalid(path, text, "must not start with '..'"))


def ip(text: str, path: str, errors: Errors, *, known: Collection[str] = ()) -> None:
    """Checks an IP address; `known` ones, which the object had before, are accepted."""
    if text not in known:
        named(names.ip, text, path, errors)


def one_per_family(addresses: Sequence[str]) -> bool:
    """True for one address or network, or for two of different families."""
    versions = [_version(address) for address in addresses]
    return len(versions) <= 2 and len(set(versions)) == len(versions)


def _version(text: str) -> int:
    try:
        return ipaddress.ip_address(text.partition("/")[0]).version
    except ValueError:
        return 0


def labels(given: Mapping[str, str], path: str, errors: Errors) -> None:
    for key, value in given.items():
        named(names.qualified_name, key, path, errors)
        named(names.label_value, value, path, errors)


def label_selector(selector: Object | None, path: str, errors: Errors) -> None:
    if not selector:
        return
    labels(selector.get("matchLabels") or {}, f"{path}.matchLabels", errors)
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        _label_requirement(expression, f"{path}.matchExpressions[{index}]", errors)


def _label_requirement(requirement: Object, path: str, errors: Errors) -> None:
    values = requirement.get("values") or ()
    operator_values(requirement.get("operator", ""), values, path, errors)
    named(names.qualified_name, requirement.get("key", ""), f"{path}.key", errors)
    for index, value in enumerate(values):
        named(names.label_value, value, f"{path}.values[{index}]", errors)


def operator_values(operator: str, values: Sequence[str], path: str, errors: Errors) -> None:
    """Checks the operator of a selector and its number of values."""
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{path}.values", detail))
    else:
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))


def unchanged(new: Any, old: Any, path: str, errors: Errors) -> None:
    """The field at `path` stays what it is; empty is the same as missing."""
    if new != old and (new or old):
        errors.append(invalid(path, new, IMMUTABLE))


def endpoint_ip(text: str, path: str, errors: Errors) -> None:
    """An address that is neither unspecified nor of this host or link alone."""
    if problems := names.ip(text):
        errors += [invalid(path, text, problem) for problem in problems]
        return
    address = ipaddress.ip_address(text)
    if address.is_unspecified:
        errors.append(invalid(path, text, f"may not be unspecified ({text})"))
    elif address.is_loopback:
        errors.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    elif address.is_link_local:
        errors.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    elif any(address in network for network in _LINK_MULTICAST if network.version == address.version):
        errors.append(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))


_STATUSES = Choice(("False", "True", "Unknown"))
_is_reason = re.compile(_REASON).fullmatch


def conditions(given: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, condition in enumerate(given):
        type_ = condition.get("type", "")
        if type_ in seen:
            errors.append(duplicate(f"{path}[{index}].type", type_))
        seen.add(type_)
        _condition(condition, f"{path}[{index}]", errors)


def _condition(given: Object, path: str, errors: Errors) -> None:
    named(names.qualified_name, given.get("type", ""), f"{path}.type", errors)
    _STATUSES.check(given.get("status", ""), f"{path}.status", errors)
    if (generation := given.get("observedGeneration") or 0) < 0:
        errors.append(invalid(f"{path}.observedGeneration", generation, "must be greater than or equal to zero"))
    if not given.get("lastTransitionTime"):
        errors.append(required(f"{path}.lastTransitionTime", "must be set"))
    reason = given.get("reason") or ""
    if not reason:
        errors.append(required(f"{path}.reason", "must be set"))
    elif not _is_reason(reason):
        errors.append(invalid(f"{path}.reason", reason, _NOT_REASON))
    if len(reason) > REASON_LENGTH:
        errors.append(too_long(f"{path}.reason", REASON_LENGTH))
    if len((given.get("message") or "").encode()) > MESSAGE_LENGTH:
        errors.append(too_long(f"{path}.message", MESSAGE_LENGTH))

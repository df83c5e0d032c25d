"""Checks that the kinds of resource.k8s.io share: names, selectors, configuration, taints and tolerations."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from podwire.kinds.field_checks import Choice, Errors, Object, named
from podwire.objects import names
from podwire.protocols.cel import CompileError, Unavailable, compile_expression
from podwire.protocols.cel.devices import LONGEST, VARIABLES
from podwire.protocols.k8sapi.status import duplicate, invalid, required, too_long, too_many

DRIVER_LENGTH = 63
POOL_LENGTH = 253
IDENTIFIER_LENGTH = 32
MOST_SELECTORS = 32
MOST_CONFIGS = 32
MOST_CONDITIONS = 4
PARAMETERS_LENGTH = 10 * 1024
EFFECTS = Choice(("NoExecute", "NoSchedule", "None"))
_OPERATORS = Choice(("Equal", "Exists"))
Item = Callable[[Any, str, Errors], None]

_BOOLEAN = ("bool", "dyn")
"""`dyn` is allowed: only evaluation can tell its type."""


def items(given: Sequence[Any], most: int, check: Item, path: str, errors: Errors) -> bool:
    """Checks each item of a list of at most `most` items; returns False for a longer one, which is not inspected."""
    if len(given) > most:
        errors.append(too_many(path, len(given), most))
        return False
    for index, item in enumerate(given):
        check(item, f"{path}[{index}]", errors)
    return True


def distinct(
    given: Sequence[Any], most: int, check: Item, key: Callable[[Any], Hashable], path: str, errors: Errors
) -> None:
    """Each of a list whose items have different keys."""
    if not items(given, most, check, path, errors):
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(given):
        if key(item) in seen:
            errors.append(duplicate(f"{path}[{index}]", key(item)))
        seen.add(key(item))


def driver(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
        return
    if len(name) > DRIVER_LENGTH:
        errors.append(too_long(path, DRIVER_LENGTH))
    for message in names.dns_subdomain(name.lower()):
        errors.append(invalid(path, name, message))


def pool(name: str, path: str, errors: Errors) -> None:
    """One or several subdomains, joined by slashes."""
    if not name:
        errors.append(required(path))
        return
    if len(name) > POOL_LENGTH:
        errors.append(too_long(path, POOL_LENGTH))
    for part in name.split("/"):
        named(names.dns_subdomain, part, path, errors)


def label(name: str, path: str, errors: Errors) -> None:
    """A request, device or counter."""
    named(names.dns_label, name, path, errors)


def label_name(name: str, path: str, errors: Errors) -> None:
    named(names.qualified_name, name, path, errors)


def qualified(name: str, path: str, errors: Errors) -> None:
    """An attribute or capacity: `[domain/]identifier`; without a domain it is the driver's."""
    if name.count("/") > 1:
        errors.append(invalid(path, name, "must not contain more than one slash"))
        return
    domain, slash, identifier = name.rpartition("/")
    if slash and not domain:
        errors.append(invalid(path, "", "the domain must not be empty"))
    elif slash:
        driver(domain, path, errors)
    if slash and not identifier:
        errors.append(invalid(path, "", "the name must not be empty"))
        return
    if len(identifier) > IDENTIFIER_LENGTH:
        errors.append(too_long(path, IDENTIFIER_LENGTH))
    named(names.c_identifier, identifier, path, errors)


def fully_qualified(name: str, path: str, errors: Errors) -> None:
    qualified(name, path, errors)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid(path, name, detail))


def selector(given: Object, path: str, errors: Errors) -> None:
    if (selected := given.get("cel")) is None:
        errors.append(required(f"{path}.cel"))
    else:
        expression(selected.get("expression") or "", f"{path}.cel.expression", errors)


def configuration(given: Object, path: str, errors: Errors) -> None:
    """Checks the opaque configuration that a class or claim has for a driver."""
    opaque = given.get("opaque")
    if opaque is None:
        errors.append(required(f"{path}.opaque"))
        return
    driver(opaque.get("driver", ""), f"{path}.opaque.driver", errors)
    raw(opaque.get("parameters"), PARAMETERS_LENGTH, f"{path}.opaque.parameters", errors)


def raw(value: Any, limit: int, path: str, errors: Errors) -> None:
    """JSON that is kept as it came: an object, and not too long."""
    if value is None:
        errors.append(required(path))
    elif len(msgspec.json.encode(value)) > limit:
        errors.append(too_long(path, limit))
    elif not isinstance(value, dict):
        errors.append(invalid(path, "<value omitted>", "must be a valid JSON object"))


def toleration(given: Object, path: str, errors: Errors) -> None:
    if key := given.get("key"):
        label_name(key, f"{path}.key", errors)
    operator, value = given.get("operator"), given.get("value") or ""
    _OPERATORS.require(operator, f"{path}.operator", errors)
    if operator == "Exists" and value:
        errors.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        named(names.label_value, value, f"{path}.value", errors)
    if effect := given.get("effect"):
        EFFECTS.check(effect, f"{path}.effect", errors)


def taint(given: Object, path: str, errors: Errors) -> None:
    label_name(given.get("key", ""), f"{path}.key", errors)
    named(names.label_value, given.get("value") or "", f"{path}.value", errors)
    EFFECTS.require(given.get("effect"), f"{path}.effect", errors)


def binding_conditions(given: Object, path: str, errors: Errors) -> None:
    """Checks binding conditions: those to wait for need those that end the wait with a failure, and the other way
    round."""
    binding, failed = given.get("bindingConditions") or (), given.get("bindingFailureConditions") or ()
    if not binding and not failed:
        return
    distinct(binding, MOST_CONDITIONS, label_name, str, f"{path}.bindingConditions", errors)
    distinct(failed, MOST_CONDITIONS, label_name, str, f"{path}.bindingFailureConditions", errors)
    for index, condition in enumerate(failed):
        if condition in binding:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(invalid(f"{path}.bindingFailureConditions[{index}]", condition, detail))
    if not binding:
        detail = "bindingConditions are required to use bindingFailureConditions"
        errors.append(invalid(f"{path}.bindingConditions", binding, detail))
    if not failed:
        detail = "bindingFailureConditions are required to use bindingConditions"
        errors.append(invalid(f"{path}.bindingFailureConditions", failed, detail))


def expression(text: str, path: str, errors: Errors) -> None:
    if len(text.encode()) > LONGEST:
        errors.append(too_long(path, LONGEST))
    elif not text:
        errors.append(required(path))
    elif problem := _problem(text):
        errors.append(invalid(path, text, problem))


def _problem(text: str) -> str:
    """Returns the problem of an expression; empty where CEL is not installed."""
    try:
        program = compile_expression(text, VARIABLES)
    except CompileError as error:
        return f"compilation failed: {error}"
    except Unavailable:
        return ""
    if program.returns in _BOOLEAN:
        return ""
    return f"must evaluate to bool or the unknown type, not {program.returns}"

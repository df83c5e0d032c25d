"""Conditions of a status, of kinds that use the common form."""

import re
from collections.abc import Sequence

from podwire.kinds.validation.pod_values import Choice, Errors, Object, named
from podwire.objects import names
from podwire.protocols.k8sapi.status import duplicate, invalid, required, too_long

REASON_LENGTH = 1024
MESSAGE_LENGTH = 32 * 1024

_STATUSES = Choice(("False", "True", "Unknown"))
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_reason = re.compile(_REASON).fullmatch
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


def conditions(given: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, each in enumerate(given):
        type_ = each.get("type", "")
        if type_ in seen:
            errors.append(duplicate(f"{path}[{index}].type", type_))
        seen.add(type_)
        _condition(each, f"{path}[{index}]", errors)


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

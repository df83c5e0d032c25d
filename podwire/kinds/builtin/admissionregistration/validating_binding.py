"""ValidatingAdmissionPolicyBinding: which policy, with which parameters, for what, and what follows."""

from collections.abc import Sequence

from podwire.kinds.builtin.admissionregistration.match_resources import match_resources
from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, named
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, required

_ACTIONS = Choice(("Audit", "Deny", "Warn"))
_NOT_FOUND = Choice(("Deny", "Allow"))
_TWICE = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
    "headers serves no purpose)"
)
_EXCLUSIVE = "name and selector are mutually exclusive"


def create(obj: Object) -> list[FieldError]:
    spec = obj.get("spec") or {}
    errors = reference_errors(spec)
    _actions(spec.get("validationActions") or (), "spec.validationActions", errors)
    return errors


def reference_errors(spec: Object) -> list[FieldError]:
    """Returns what is wrong with the policy, parameters and resources that a binding names."""
    errors: list[FieldError] = []
    if not spec.get("policyName"):
        errors.append(required("spec.policyName"))
    else:
        named(names.dns_subdomain, spec["policyName"], "spec.policyName", errors)
    if (ref := spec.get("paramRef")) is not None:
        path = "spec.paramRef"
        name, selector = ref.get("name") or "", ref.get("selector")
        if name:
            named(names.path_segment, name, f"{path}.name", errors)
            if selector is not None:
                errors.append(forbidden(f"{path}.name", _EXCLUSIVE))
        if selector is not None:
            label_selector(selector, f"{path}.selector", errors)
            if name:
                errors.append(forbidden(f"{path}.selector", _EXCLUSIVE))
        if not name and selector is None:
            errors.append(required(path, "one of name or selector must be specified"))
        _NOT_FOUND.require(ref.get("parameterNotFoundAction"), f"{path}.parameterNotFoundAction", errors)
    if (resources := spec.get("matchResources")) is not None:
        match_resources(resources, "spec.matchResources", errors)
    return errors


def _actions(given: Sequence[str], path: str, errors: Errors) -> None:
    for index, action in enumerate(given):
        _ACTIONS.check(action, f"{path}[{index}]", errors)
        if action in given[:index]:
            errors.append(duplicate(f"{path}[{index}]", action))
    if "Deny" in given and "Warn" in given:
        errors.append(invalid(path, given, _TWICE))
    if not given:
        errors.append(required(path, "at least one validation action is required"))

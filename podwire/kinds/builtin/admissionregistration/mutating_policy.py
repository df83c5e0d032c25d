"""MutatingAdmissionPolicy and its binding: their form, and whether each expression can be compiled."""

from podwire.kinds.builtin.admissionregistration import validating_binding
from podwire.kinds.builtin.admissionregistration.validating_policy import (
    conditions_errors,
    constraints_errors,
    param_kind_errors,
    variables_errors,
)
from podwire.kinds.field_checks import Choice, Errors, Object
from podwire.kinds.policies.expressions import cel_go_type
from podwire.kinds.policies.policy import Compiler
from podwire.protocols.cel import CompileError, Unavailable
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, required

_FAILURE_POLICIES = Choice(("Fail", "Ignore"))
_REINVOCATIONS = Choice(("IfNeeded", "Never"))
_OPERATIONS = Choice(("*", "CONNECT", "CREATE", "UPDATE"))
_PATCH_TYPES = Choice(("ApplyConfiguration", "JSONPatch"))
_PARTS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_RETURNS = {"ApplyConfiguration": ("map", "Object"), "JSONPatch": ("list", "list(JSONPatch)")}
"""The kind of value that a mutation must have, and its name upstream."""


def create(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj.get("spec") or {}
    _FAILURE_POLICIES.require(spec.get("failurePolicy"), "spec.failurePolicy", errors)
    if (kind := spec.get("paramKind")) is not None:
        param_kind_errors(kind, "spec.paramKind", errors)
    constraints_errors(spec.get("matchConstraints"), "spec.matchConstraints", errors)
    _operations(spec.get("matchConstraints"), "spec.matchConstraints", errors)
    compiler = Compiler(params=kind is not None)
    conditions_errors(spec.get("matchConditions") or (), compiler, "spec.matchConditions", errors)
    variables_errors(spec.get("variables") or (), compiler, errors)
    mutations = spec.get("mutations") or ()
    if not mutations:
        errors.append(required("spec.mutations", "mutations must contain at least one item"))
    for index, mutation in enumerate(mutations):
        _mutation(mutation, compiler, f"spec.mutations[{index}]", errors)
    _REINVOCATIONS.require(spec.get("reinvocationPolicy"), "spec.reinvocationPolicy", errors)
    return errors


def create_binding(obj: Object) -> list[FieldError]:
    errors = validating_binding.reference_errors(obj.get("spec") or {})
    _operations((obj.get("spec") or {}).get("matchResources"), "spec.matchResources", errors)
    return errors


def _operations(resources: Object | None, path: str, errors: Errors) -> None:
    """Checks that nothing but creations, updates and connections is to be changed."""
    for rule in (resources or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            _OPERATIONS.check(operation, f"{path}.resourceRules.operations", errors)


def _mutation(mutation: Object, compiler: Compiler, path: str, errors: Errors) -> None:
    patch_type = mutation.get("patchType") or ""
    if patch_type not in _PARTS:
        _PATCH_TYPES.require(patch_type, f"{path}.patchType", errors)
        return
    for other, word in _PARTS.items():
        part = mutation.get(word)
        if other == patch_type and part is None:
            errors.append(required(f"{path}.{word}", f"must be specified when patchType is {patch_type}"))
        elif other != patch_type and part is not None:
            detail = f"must not be specified when patchType is {patch_type}"
            errors.append(invalid(f"{path}.{word}", f"{{{word}}}", detail))
        elif part is not None:
            _expression(patch_type, (part.get("expression") or "").strip(), compiler, f"{path}.{word}", errors)


def _expression(patch_type: str, text: str, compiler: Compiler, path: str, errors: Errors) -> None:
    where = f"{path}.expression"
    if not text:
        errors.append(required(where))
        return
    try:
        returns = compiler.compiled(text, literals=True).program.returns
    except CompileError as error:
        errors.append(invalid(where, text, f"compilation failed: {error}"))
        return
    except Unavailable as error:
        errors.append(forbidden(where, str(error)))
        return
    kind, name = _RETURNS[patch_type]
    if returns.partition("<")[0] not in (kind, "dyn"):
        errors.append(invalid(where, text, f"must evaluate to {name} but got {cel_go_type(returns)}"))

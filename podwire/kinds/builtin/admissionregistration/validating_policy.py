"""ValidatingAdmissionPolicy: its form, and whether each of its expressions can be compiled."""

from collections.abc import Sequence

from podwire.kinds.builtin.admissionregistration.match_resources import match_resources
from podwire.kinds.field_checks import Choice, Errors, Object, conditions, named
from podwire.kinds.policies.expressions import cel_go_type
from podwire.kinds.policies.policy import IDENTIFIER, Compiler
from podwire.objects import names
from podwire.protocols.cel import CompileError, Unavailable
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, required, too_many

MOST_CONDITIONS = 64
MOST_ANNOTATIONS = 20
LONGEST_VALUE = 5 * 1024
_FAILURE_POLICIES = Choice(("Fail", "Ignore"))
_REASONS = Choice(("Forbidden", "Invalid", "RequestEntityTooLarge"))
_RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_NOTHING_TO_DO = "validations or auditAnnotations must contain at least one item"


def create(obj: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj.get("spec") or {}
    _FAILURE_POLICIES.require(spec.get("failurePolicy"), "spec.failurePolicy", errors)
    if (kind := spec.get("paramKind")) is not None:
        param_kind_errors(kind, "spec.paramKind", errors)
    constraints_errors(spec.get("matchConstraints"), "spec.matchConstraints", errors)
    compiler = Compiler(params=kind is not None)
    conditions_errors(spec.get("matchConditions") or (), compiler, "spec.matchConditions", errors)
    variables_errors(spec.get("variables") or (), compiler, errors)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        errors += [required(f"spec.{field}", _NOTHING_TO_DO) for field in ("validations", "auditAnnotations")]
    for index, validation in enumerate(validations):
        _validation(validation, compiler, f"spec.validations[{index}]", errors)
    _annotations(annotations, (obj.get("metadata") or {}).get("name") or "", compiler, errors)
    return errors


def variables_errors(variables: Sequence[Object], compiler: Compiler, errors: Errors) -> None:
    """Checks the variables of a policy, and defines them for later expressions."""
    for index, variable in enumerate(variables):
        path = f"spec.variables[{index}]"
        name, text = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            errors.append(required(f"{path}.name", "name is not specified"))
        elif not IDENTIFIER.fullmatch(name) or name in _RESERVED:
            errors.append(invalid(f"{path}.name", name, "name is not a valid CEL identifier"))
        elif name in compiler.variables:
            errors.append(duplicate(f"{path}.name", name))
        if not text.strip():
            errors.append(required(f"{path}.expression", "expression is not specified"))
        elif name and (problem := compiler.define(name, text)):
            errors.append(invalid(f"{path}.expression", text, problem))


def update_status(new: Object, _old: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    status = new.get("status") or {}
    warnings = (status.get("typeChecking") or {}).get("expressionWarnings") or ()
    errors += [
        required(f"status.typeChecking.expressionWarnings[{index}].{word}")
        for index, warning in enumerate(warnings)
        for word in ("warning", "fieldRef")
        if not (warning.get(word) or "").strip()
    ]
    conditions(status.get("conditions") or (), "status.conditions", errors)
    return errors


def param_kind_errors(kind: Object, path: str, errors: Errors) -> None:
    given, word = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = given.rpartition("/")
    if not given:
        errors.append(required(f"{path}.apiVersion"))
    elif given.count("/") > 1:
        errors.append(invalid(f"{path}.apiVersion", given, f"unexpected GroupVersion string: {given}"))
    else:
        if group and (problems := names.dns_subdomain(group)):
            errors.append(invalid(f"{path}.apiVersion", group, ",".join(problems)))
        if not version:
            errors.append(invalid(f"{path}.apiVersion", given, "version must be specified"))
        elif problems := names.dns1035_label(version):
            errors.append(invalid(f"{path}.apiVersion", version, ",".join(problems)))
    if not word:
        errors.append(required(f"{path}.kind"))
    elif problems := names.dns1035_label(word.lower()):
        detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        errors.append(invalid(f"{path}.kind", word, detail))


def constraints_errors(given: Object | None, path: str, errors: Errors) -> None:
    if given is None:
        errors.append(required(path))
        return
    match_resources(given, path, errors)
    if not given.get("resourceRules"):
        errors.append(required(f"{path}.resourceRules"))


def conditions_errors(given: Sequence[Object], compiler: Compiler, path: str, errors: Errors) -> None:
    if len(given) > MOST_CONDITIONS:
        errors.append(too_many(path, len(given), MOST_CONDITIONS))
    seen: set[str] = set()
    for index, condition in enumerate(given):
        where, name, text = f"{path}[{index}]", condition.get("name") or "", (condition.get("expression") or "").strip()
        if not text:
            errors.append(required(f"{where}.expression"))
        else:
            expression_errors(text, ("bool",), compiler, f"{where}.expression", errors, composed=False)
        if not name:
            errors.append(required(f"{where}.name"))
            continue
        named(names.qualified_name, name, f"{where}.name", errors)
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)


def _validation(given: Object, compiler: Compiler, path: str, errors: Errors) -> None:
    text, message, expression = (given.get(field) or "" for field in ("expression", "message", "messageExpression"))
    if not text.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    else:
        expression_errors(text, ("bool",), compiler, f"{path}.expression", errors)
    if expression and not expression.strip():
        errors.append(invalid(f"{path}.messageExpression", expression, "must be non-empty if specified"))
    elif expression:
        where = f"{path}.messageExpression"
        expression_errors(expression, ("string",), compiler, where, errors, authorizer=False)
    if message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "message must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        errors.append(invalid(f"{path}.message", message, "message must not contain line breaks"))
    if given.get("reason") is not None:
        _REASONS.check(given["reason"], f"{path}.reason", errors)


def _annotations(given: Sequence[Object], policy: str, compiler: Compiler, errors: Errors) -> None:
    path = "spec.auditAnnotations"
    if len(given) > MOST_ANNOTATIONS:
        errors.append(invalid(path, given, f"must not have more than {MOST_ANNOTATIONS} auditAnnotations"))
    seen: set[str] = set()
    for index, annotation in enumerate(given):
        where, key, text = (
            f"{path}[{index}]",
            annotation.get("key") or "",
            (annotation.get("valueExpression") or "").strip(),
        )
        if policy:
            named(names.qualified_name, f"{policy}/{key}", f"{where}.key", errors)
        else:
            errors.append(invalid(f"{where}.key", key, "requires metadata.name be non-empty"))
        if not text:
            errors.append(required(f"{where}.valueExpression", "valueExpression is not specified"))
        elif len(text.encode()) > LONGEST_VALUE:
            detail = f"must not exceed {LONGEST_VALUE} bytes in length"
            errors.append(required(f"{where}.valueExpression", detail))
        else:
            expression_errors(text, ("string", "null"), compiler, f"{where}.valueExpression", errors)
        if key in seen:
            errors.append(duplicate(f"{where}.key", key))
        seen.add(key)


def expression_errors(
    text: str,
    returns: tuple[str, ...],
    compiler: Compiler,
    path: str,
    errors: Errors,
    *,
    composed: bool = True,
    authorizer: bool = True,
) -> None:
    """Checks that the expression compiles and has one of the result types."""
    try:
        result = compiler.compiled(text, composed=composed, authorizer=authorizer).program.returns
    except CompileError as error:
        errors.append(invalid(path, text, f"compilation failed: {error}"))
        return
    except Unavailable as error:
        errors.append(forbidden(path, str(error)))
        return
    if result not in returns:
        expected = cel_go_type(returns[0]) if len(returns) == 1 else f"one of [{' '.join(map(cel_go_type, returns))}]"
        errors.append(invalid(path, text, f"must evaluate to {expected} but got {cel_go_type(result)}"))

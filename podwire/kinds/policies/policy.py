"""Policies and bindings, compiled from their stored form."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from podwire.kinds.policies.expressions import JSON_PATCH, Expression, compiled, variable_type
from podwire.kinds.policies.literals import BadLiteral, as_maps
from podwire.kinds.policies.matching import Constraints, constraints
from podwire.protocols.cel import CompileError, Unavailable
from podwire.protocols.cel.errors import Problem
from podwire.protocols.cel.types import DYN, Type
from podwire.protocols.k8sapi.status import Reason

Json = Mapping[str, Any]
Compiled = Expression | str
"""An expression, or why there is none: what cannot be compiled is an error when it is needed, and fails as the policy
says."""


@dataclass(frozen=True, slots=True)
class Validation:
    """A validation: its expression, and its message."""

    text: str
    holds: Compiled
    message: str
    message_expression: Compiled | None
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A ValidatingAdmissionPolicy, ready to be run."""

    name: str
    constraints: Constraints
    fails: bool
    """An expression that cannot be evaluated denies the request."""
    params: tuple[str, str] | None
    """apiVersion and kind of the parameters."""
    variables: Mapping[str, Compiled] = field(default_factory=dict)
    conditions: tuple[Compiled, ...] = ()
    validations: tuple[Validation, ...] = ()
    annotations: tuple[tuple[str, Compiled], ...] = ()

    @cached_property
    def needs_namespace(self) -> bool:
        return any("namespaceObject" in expression.program.names for expression in self._expressions())

    def _expressions(self) -> Iterator[Expression]:
        of_validations = (
            part for validation in self.validations for part in (validation.holds, validation.message_expression)
        )
        of_annotations = (annotation for _, annotation in self.annotations)
        for expression in (*self.variables.values(), *self.conditions, *of_validations, *of_annotations):
            if isinstance(expression, Expression):
                yield expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A ValidatingAdmissionPolicyBinding."""

    name: str
    policy: str
    constraints: Constraints
    params: Json | None
    actions: tuple[str, ...]


def binding_of(obj: Json) -> Binding:
    """Returns a stored binding; raises ValueError for an invalid selector."""
    spec = obj["spec"]
    return Binding(
        name=obj["metadata"]["name"],
        policy=spec.get("policyName") or "",
        constraints=constraints(spec.get("matchResources")),
        params=spec.get("paramRef"),
        actions=tuple(spec.get("validationActions") or ()),
    )


def policy_of(obj: Json) -> Policy:
    """Returns a stored policy; raises ValueError for an invalid selector."""
    spec = obj["spec"]
    kind = spec.get("paramKind")
    compiler = Compiler(params=kind is not None)
    for variable in spec.get("variables") or ():
        compiler.define(variable["name"], variable["expression"])
    return Policy(
        name=obj["metadata"]["name"],
        constraints=constraints(spec.get("matchConstraints")),
        fails=spec.get("failurePolicy", "Fail") != "Ignore",
        params=(kind.get("apiVersion", ""), kind.get("kind", "")) if kind else None,
        variables=compiler.variables,
        conditions=tuple(
            compiler.tried(condition["expression"].strip(), composed=False)
            for condition in spec.get("matchConditions") or ()
        ),
        validations=tuple(_validation(validation, compiler) for validation in spec.get("validations") or ()),
        annotations=tuple(
            (annotation["key"], compiler.tried(annotation["valueExpression"]))
            for annotation in spec.get("auditAnnotations") or ()
        ),
    )


def _validation(validation: Json, compiler: "Compiler") -> Validation:
    message = validation.get("messageExpression") or ""
    return Validation(
        validation["expression"],
        compiler.tried(validation["expression"]),
        (validation.get("message") or "").strip(),
        compiler.tried(message, authorizer=False) if message else None,
        Reason(validation.get("reason") or Reason.INVALID),
    )


IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")


class Compiler:
    """Compiles the expressions of one policy, whose variables later ones may use; over objects of which more may be
    known than that they are some."""

    def __init__(self, *, params: bool, objects: Type = DYN) -> None:
        self._params = params
        self._objects = objects
        self._types: dict[str, Type] = {}
        self.variables: dict[str, Compiled] = {}

    def compiled(
        self, text: str, *, composed: bool = True, literals: bool = False, authorizer: bool = True
    ) -> Expression:
        """Raises CompileError and Unavailable. Conditions are not `composed`: they know no variables. Mutations may
        have message `literals`. Expressions of messages have no `authorizer`."""
        variables = self._types if composed else None
        if literals:
            try:
                text = as_maps(text)
            except BadLiteral as error:
                raise CompileError(text, [Problem(1, 1, str(error))]) from error
        return compiled(
            text,
            params=self._params,
            variables=variables,
            objects=self._objects,
            functions=JSON_PATCH * literals,
            authorizer=authorizer,
        )

    def tried(self, text: str, *, composed: bool = True, literals: bool = False, authorizer: bool = True) -> Compiled:
        try:
            return self.compiled(text, composed=composed, literals=literals, authorizer=authorizer)
        except (CompileError, Unavailable) as error:
            return f"compilation error: compilation failed: {error}"

    def define(self, name: str, text: str) -> str:
        """Adds a variable; returns why its expression is invalid, if it is. Later expressions may use it all the same,
        unless no expression can: variables are fields of an object, and a field's name is an identifier."""
        expression = self.tried(text)
        self.variables[name] = expression
        if not IDENTIFIER.fullmatch(name):
            return expression.removeprefix("compilation error: ") if isinstance(expression, str) else ""
        self._types[name] = DYN
        if isinstance(expression, str):
            return expression.removeprefix("compilation error: ")
        try:
            self._types[name] = variable_type(expression.program.returns)
        except ValueError as error:
            self.variables[name] = str(error)
            return str(error)
        return ""

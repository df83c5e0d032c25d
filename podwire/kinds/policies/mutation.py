"""Mutations of a MutatingAdmissionPolicy: compiled, evaluated and applied to an object."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from podwire.kinds.apply.errors import configuration_errors, joined
from podwire.kinds.apply.merge import merge
from podwire.kinds.apply.types import BadElement, Deduced, Elements, Leaf, Type, shown
from podwire.kinds.patches import PatchError, json_patch
from podwire.kinds.policies.evaluation import Scope
from podwire.kinds.policies.expressions import Expression
from podwire.kinds.policies.policy import Compiled, Compiler, Json, Policy, policy_of
from podwire.kinds.stored import Object
from podwire.protocols.cel import CelError

APPLY, JSON_PATCH = "ApplyConfiguration", "JSONPatch"


class MutationFailed(Exception):
    """A mutation cannot be evaluated or applied."""


@dataclass(frozen=True, slots=True)
class Mutation:
    patch_type: str
    expression: Compiled


@dataclass(frozen=True, kw_only=True)
class MutatingPolicy(Policy):
    """A MutatingAdmissionPolicy, ready to be run."""

    mutations: tuple[Mutation, ...] = ()
    reinvoked: bool = False

    @cached_property
    def needs_namespace(self) -> bool:
        return any("namespaceObject" in expression.program.names for expression in self._all())

    def _all(self) -> Iterator[Expression]:
        for expression in (*self.variables.values(), *(mutation.expression for mutation in self.mutations)):
            if isinstance(expression, Expression):
                yield expression


def mutating_policy_of(obj: Json) -> MutatingPolicy:
    """Returns a stored policy; raises ValueError for an invalid selector."""
    spec = obj["spec"]
    plain = policy_of(obj)
    compiler = Compiler(params=plain.params is not None)
    for variable in spec.get("variables") or ():
        compiler.define(variable["name"], variable["expression"])
    return MutatingPolicy(
        name=plain.name,
        constraints=plain.constraints,
        fails=plain.fails,
        params=plain.params,
        variables=plain.variables,
        conditions=plain.conditions,
        mutations=tuple(_mutation(mutation, compiler) for mutation in spec.get("mutations") or ()),
        reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
    )


def _mutation(mutation: Json, compiler: Compiler) -> Mutation:
    patch_type = mutation["patchType"]
    part = mutation["applyConfiguration" if patch_type == APPLY else "jsonPatch"]
    return Mutation(patch_type, compiler.tried(part["expression"].strip(), literals=True))


def mutated(policy: MutatingPolicy, mutation: Mutation, known: Mapping[str, Any], typed: Type) -> Object:
    """Returns the object of `known` after a mutation. Raises MutationFailed, and Spent."""
    value = Scope(known, policy.variables).run(mutation.expression)
    if isinstance(value, CelError):
        raise MutationFailed(str(value))
    try:
        plain = msgspec.json.decode(msgspec.json.encode(value))
    except TypeError as error:
        raise MutationFailed(f"the value is not JSON: {error}") from error
    return _applied(known["object"], plain, typed) if mutation.patch_type == APPLY else _patched(known["object"], plain)


def _applied(obj: Object, config: Any, typed: Type) -> Object:
    """Merges an apply configuration: field by field, elements of lists by their keys; nothing is removed."""
    if not isinstance(config, dict):
        raise MutationFailed(f"unsupported return type from ApplyConfiguration expression: {type(config).__name__}")
    config = {**config, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    if errors := configuration_errors(typed, config):
        raise MutationFailed(f"error applying patch: failed to convert patch object to typed object: {joined(errors)}")
    if atomics := list(_atomics(typed, config, ())):
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(atomics)}"
        raise MutationFailed(f"error applying patch: invalid ApplyConfiguration: {why}")
    merged: Object = merge(typed, obj, config)
    return merged


def _atomics(of: Type | None, value: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yields the paths at which a configuration would replace a whole list or object."""
    if of is None or isinstance(of, Deduced) or not isinstance(value, dict | list):
        return
    if isinstance(of, Leaf):
        yield shown(path)
    elif isinstance(of, Elements):
        for element in value:
            try:
                yield from _atomics(of.element, element, (*path, of.name(element)))
            except BadElement:
                continue
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from _atomics(of.member(name), member, (*path, f"f:{name}"))


def _patched(obj: Object, operations: Any) -> Object:
    try:
        patched = json_patch.apply(obj, operations)
    except PatchError as error:
        raise MutationFailed(f"error applying patch: {error.message}") from error
    if not isinstance(patched, dict):
        raise MutationFailed("error applying patch: the result is not an object")
    return patched

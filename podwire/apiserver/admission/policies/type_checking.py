"""Type-checks the expressions of a policy against the built-in kinds that it names.

An expression over `dyn` always compiles; fields that no object of the kind can have are reported in the policy's
status. Nothing is refused, because the policy may be meant for other kinds too.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from podwire.apiserver.registry import Registry
from podwire.kinds.policies.policy import Compiler
from podwire.kinds.schema.definitions import Definitions, Schema, load
from podwire.protocols.cel import CompileError, types
from podwire.protocols.cel.types import Type
from podwire.protocols.k8sapi.kinds import Kind

Json = Mapping[str, Any]
MOST_KINDS = 10

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SCALARS = {"boolean": types.BOOL, "integer": types.INT, "number": types.DOUBLE, "string": types.STRING}
_LOOSE_FORMATS = ("byte", "date-time", "int-or-string")
"""String formats that some expressions treat as other types."""


def checked(policy: Json, registry: Registry) -> list[Json]:
    """Returns the warnings for a policy's status."""
    found: list[Json] = []
    kinds = {kind: known for kind in kinds_of(policy["spec"], registry) if (known := object_type(kind)) is not None}
    for path, text in _expressions(policy["spec"]):
        problems = [
            f"{_kind_name(kind)}: {why}\n" for kind, known in kinds.items() if (why := _wrong(policy, text, known))
        ]
        if problems:
            found.append({"fieldRef": path, "warning": "\n".join(problems)})
    return found


def kinds_of(spec: Json, registry: Registry) -> list[Kind]:
    """Returns the built-in kinds that the rules name explicitly, without wildcards."""
    found: set[Kind] = set()
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        words = [sorted(rule.get(field) or ()) for field in ("apiGroups", "apiVersions", "resources")]
        if any("*" in word for word in words):
            continue
        resources = (registry.find(*words_of_kind) for words_of_kind in product(*words) if "/" not in words_of_kind[2])
        found.update(resource.kind for resource in resources if resource is not None and not resource.custom)
    return sorted(found, key=lambda kind: (kind.group, kind.version, kind.kind))[:MOST_KINDS]


def _expressions(spec: Json) -> Iterator[tuple[str, str]]:
    for index, validation in enumerate(spec.get("validations") or ()):
        for word in ("expression", "messageExpression"):
            if validation.get(word):
                yield f"spec.validations[{index}].{word}", validation[word]


def _wrong(policy: Json, text: str, known: Type) -> str:
    spec = policy["spec"]
    compiler = Compiler(params=spec.get("paramKind") is not None, objects=known)
    for variable in spec.get("variables") or ():
        compiler.define(variable["name"], variable["expression"])
    try:
        compiler.compiled(text)
    except CompileError as error:
        return f"compilation failed: {error}"
    return ""


def _kind_name(kind: Kind) -> str:
    return f"{kind.group}/{kind.version}, Kind={kind.kind}"


@cache
def object_type(kind: Kind) -> Type | None:
    """Returns the CEL type of a built-in kind's objects."""
    definitions = load()
    name = definitions.name_of(kind.group, kind.version, kind.kind)
    return _Types(definitions).of(name, ()) if name else None


class _Types:
    """Converts definitions to CEL types; recursive ones become `dyn` at the recursion."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def of(self, name: str, above: tuple[str, ...]) -> Type:
        if name in above:
            return types.DYN
        return self._type(self._definitions.schema(name), (*above, name))

    def _type(self, schema: Schema, above: tuple[str, ...]) -> Type:
        if schema.ref:
            return self.of(schema.target, above)
        if schema.format in _LOOSE_FORMATS:
            return types.DYN
        if schema.properties:
            fields = ((name, self._type(property_, above)) for name, property_ in schema.properties.items())
            return types.struct(field for field in fields if _IDENTIFIER.fullmatch(field[0]))
        if schema.json_type == "array" and schema.items is not None:
            return types.list_of(self._type(schema.items, above))
        if schema.json_type == "object" and schema.values is not None:
            return types.map_of(types.STRING, self._type(schema.values, above))
        return _SCALARS.get(schema.json_type, types.DYN)

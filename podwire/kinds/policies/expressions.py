"""Expressions of a policy: compiled, with the policy's own variables that they speak of."""

from collections.abc import Mapping
from dataclasses import dataclass

from podwire.protocols.cel import Program, compile_expression, syntax, types
from podwire.protocols.cel.admission import AUTHORIZATION, PARAMS, VARIABLES, composed
from podwire.protocols.cel.functions import authorization
from podwire.protocols.cel.types import OPAQUE, STRING, Function, Type

JSON_PATCH = (
    Function(
        "jsonpatch.escapeKey",
        (STRING,),
        STRING,
        lambda key: key.replace("~", "~0").replace("/", "~1"),
        member=False,
    ),
)
"""Functions of mutations: a key as a JSON pointer has it."""

_SIMPLE = {
    type_.name: type_
    for type_ in (types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.STRING, types.TIMESTAMP)
}
_KNOWN = {**_SIMPLE, **{type_.name.lower(): type_ for type_ in OPAQUE}}
_UNCOMPOSABLE = ("optional_type", "type", "uint")
"""Types of values that cannot be passed from one expression to another."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`uses` names the policy's variables that the expression speaks of."""

    program: Program
    uses: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.program.expression


def compiled(
    text: str,
    *,
    params: bool,
    variables: Mapping[str, Type] | None,
    objects: Type = types.DYN,
    functions: tuple[Function, ...] = (),
    authorizer: bool = True,
) -> Expression:
    """Returns an expression over what a request brings, the parameters if there are any, the variables before it (None
    for where there can be no variables), and the authorizer except in messages. Raises CompileError and Unavailable."""
    known = {**VARIABLES, "object": objects, "oldObject": objects, **(PARAMS if params else {})}
    if variables is not None:
        known |= composed(dict(variables))
    if authorizer:
        known |= AUTHORIZATION
    program = compile_expression(text, known, functions=(*authorization.FUNCTIONS, *functions))
    spoken = (
        node.field
        for node in syntax.walk(program.tree.root)
        if isinstance(node, syntax.Select)
        and isinstance(node.operand, syntax.Ident)
        and node.operand.name == "variables"
    )
    return Expression(program, tuple(dict.fromkeys(spoken)))


def cel_go_type(returns: str) -> str:
    """Returns the type of a program's value as cel-go writes it."""
    return returns.replace("<", "(").replace(">", ")").replace("null", "null_type")


def variable_type(returns: str) -> Type:
    """Returns the type of a variable for later expressions. Raises ValueError for a type that variables cannot have."""
    name = returns.partition("<")[0]
    if name in _UNCOMPOSABLE:
        raise ValueError(f"a variable cannot be of type {cel_go_type(returns)}")
    if returns in _KNOWN:
        return _KNOWN[returns]
    if name == "list":
        return types.list_of(_element(returns.removeprefix("list<").removesuffix(">")))
    if name == "map" and returns.startswith("map<string, "):
        return types.map_of(types.STRING, _element(returns.removeprefix("map<string, ").removesuffix(">")))
    return types.DYN


def _element(returns: str) -> Type:
    """Returns the type of list elements and map values: one that the checker knows, else dyn."""
    return _KNOWN.get(returns, types.DYN)

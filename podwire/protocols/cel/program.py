"""Expressions compiled and run. The library, and protobuf with it, come in with the first expression."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from podwire.protocols.cel import syntax
from podwire.protocols.cel.errors import CelError, CompileError, Problem, evaluation_error, problems_in
from podwire.protocols.cel.functions import Function
from podwire.protocols.cel.types import Type, list_of

LONGEST = 100_000
"""Characters of an expression, as cel-go's parser has it."""

_OPTIONAL = "__optional_"
_LITERALS = {"matches": 1, "find": 1, "findAll": 1, "duration": 0, "timestamp": 0}
"""Functions, and the argument that has to make sense when it is written down."""
_NOT_RUN = {"cel.@mapInsert": "transformMap and transformMapEntry are not supported"}
"""Functions that the library's checker knows and its runtime does not."""


class Values:
    """The values of variables, converted once for all the programs that are run over them."""

    __slots__ = ("_activations", "_data", "readable")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._data = values
        self.readable = not _has_nul(values)
        """The library takes a text to end at its first NUL: rather than half a text, it is given none."""
        self._activations: dict[tuple[Any, frozenset[str]], Any] = {}

    def activation(self, env: Any, optional: frozenset[str]) -> Any:
        """The activation of an evaluation; optional variables are lists of one or no element."""
        made = self._activations.get((env, optional))
        if made is None:
            data = {name: value for name, value in self._data.items() if name not in optional}
            data |= {_OPTIONAL + name: [self._data[name]] if name in self._data else [] for name in optional}
            made = self._activations[env, optional] = env.Activation(data)
        return made


def _has_nul(values: Any) -> bool:
    """Whether there is a NUL in any text. Looked for in the JSON first, which is quick, and where it may be in all."""
    if b"\\u0000" not in msgspec.json.encode(values, enc_hook=lambda _other: None):
        return False
    pending = [values]
    for value in pending:
        if isinstance(value, Mapping):
            pending += value.keys()
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return any(isinstance(value, str) and "\0" in value for value in pending)


class Program:
    """A compiled expression."""

    __slots__ = ("_env", "_error", "_optional", "_run", "expression", "names", "returns", "tree")

    def __init__(
        self, expression: str, checked: Any, functions: tuple[Function, ...], optional: frozenset[str]
    ) -> None:
        # Protobuf and the library, when there is something to read.
        from podwire.protocols.cel.checked import made_optional, read  # noqa: PLC0415 - see above
        from podwire.protocols.cel.environment import kubernetes_functions, library, running  # noqa: PLC0415 - likewise

        serialized = checked.serialize()
        self.expression = expression
        self.returns: str = checked.return_type().name().lower()
        """The type of the value, such as `bool`; `dyn` when only running can tell."""
        self.tree = read(serialized)
        self.names = frozenset(name for name in syntax.names_in(self.tree) if not name.startswith(_OPTIONAL))
        self._optional = optional
        self._env = running(functions)
        optionals = {function.name for function in (*kubernetes_functions(), *functions) if function.optional}
        if any(isinstance(node, syntax.Call) and node.function in optionals for node in syntax.walk(self.tree.root)):
            serialized = made_optional(serialized, optionals)
        self._run = self._env.deserialize(serialized)
        self._error = library().Type.ERROR

    def run(self, values: Mapping[str, Any] | Values) -> Any | CelError:
        """The value that the expression has; or why it has none. Optional variables that are missing are none."""
        bound = values if isinstance(values, Values) else Values(values)
        if not bound.readable:
            return CelError("texts with NUL characters cannot be evaluated")
        try:
            value = self._run.eval(bound.activation(self._env, self._optional))
            return evaluation_error(str(value.value())) if value.type() == self._error else value.plain_value()
        except RuntimeError as error:
            return evaluation_error(str(error))
        except TypeError:
            return CelError("the value is of a type that cannot leave the expression")

    def problem(self, node: syntax.Node, message: str) -> Problem:
        """Something that is wrong with a node, at its place in the expression as it was written."""
        text = _bound(self.expression, sorted(self._optional))
        before = text[: self.tree.offsets.get(node.id, 0)]
        return Problem(before.count("\n") + 1 - len(self._optional), len(before) - before.rfind("\n"), message)


def compile_expression(
    expression: str, variables: Mapping[str, Type], *, functions: tuple[Function, ...] = ()
) -> Program:
    """The program of an expression over these variables, remembered. Raises CompileError, which names the places; and
    Unavailable when the CEL library is not there."""
    return _compiled(expression, tuple(sorted(variables.items())), functions)


@lru_cache(maxsize=1024)
def _compiled(expression: str, variables: tuple[tuple[str, Type], ...], functions: tuple[Function, ...]) -> Program:
    from podwire.protocols.cel.environment import checking  # noqa: PLC0415 - 50 MB that only expressions need

    if len(expression) > LONGEST:
        raise CompileError(expression, [Problem(0, 0, f"expression code point size exceeds limit: {LONGEST}")])
    optional = [name for name, variable in variables if variable.name == "optional_type"]
    plain = tuple((_OPTIONAL + name, list_of(variable.parameters[0])) if name in optional else (name, variable)
                  for name, variable in variables)  # fmt: skip
    try:
        checked = checking(plain, functions).compile(_bound(expression, optional))
    except RuntimeError as error:
        problems = [
            Problem(problem.line - len(optional), problem.column, problem.message)
            for problem in problems_in(str(error))
        ]
        raise CompileError(expression, problems) from None
    program = Program(expression, checked, functions, frozenset(optional))
    if wrong := list(_wrong(program)):
        raise CompileError(expression, wrong)
    return program


def _bound(expression: str, optional: list[str]) -> str:
    """The expression within bindings of its optional variables, which the library cannot be given. Each takes a line of
    its own before it, and the closing parenthesis a line after, lest a comment swallow it."""
    for name in optional:
        hidden = _OPTIONAL + name
        value = f"{hidden}.size() == 0 ? optional.none() : optional.of({hidden}[0])"
        expression = f"cel.bind({name}, {value},\n{expression}\n)"
    return expression


def _wrong(program: Program) -> Iterator[Problem]:
    """Rejects what the type checker accepts: message literals, invalid literals, functions without an
    implementation."""
    from podwire.protocols.cel.environment import wrong_literal  # noqa: PLC0415 - as above

    for node in syntax.walk(program.tree.root):
        message, at = "", node
        if isinstance(node, syntax.Made) and node.message:
            message = f"undeclared reference to '{node.message}' (in container '')"
        if isinstance(node, syntax.Call):
            message = _NOT_RUN.get(node.function, "")
            if (literal := _literal(node)) and (why := wrong_literal(node.function, literal.value)):
                at, message = literal, f"invalid {node.function} argument: {evaluation_error(why)}"
        if message:
            yield program.problem(at, message)


def _literal(call: syntax.Call) -> syntax.Const | None:
    place = _LITERALS.get(call.function)
    if place is None or place >= len(call.args):
        return None
    argument = call.args[place]
    return argument if isinstance(argument, syntax.Const) and isinstance(argument.value, str) else None

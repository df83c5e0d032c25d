"""The CEL library as this package uses it. The only file that imports it, and only when an expression is compiled.

Two kinds of environments: one for checking, made for the types of the variables at hand, and one for running, which has
every function once and knows no variables. What the first has checked is handed to the second in serialized form; so
structs can be messages to the checker and plain maps at run time, and overloads that differ in what their lists hold
need not differ at run time, where the library cannot tell them apart.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from google.protobuf import message_factory
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from podwire.protocols.cel.checked import PLAIN
from podwire.protocols.cel.descriptors import Structs, base_pool
from podwire.protocols.cel.errors import OVERLOAD, Unavailable
from podwire.protocols.cel.functions import (
    Function,
    Opaque,
    authorization,
    formats,
    lists,
    networks,
    quantities,
    regexes,
    urls,
    versions,
)
from podwire.protocols.cel.types import BOOL, DOUBLE, INT, Type
from podwire.protocols.cel.types import OPAQUE as OPAQUE_TYPES

_EXTENSIONS = """\
extensions:
- name: bindings
- name: lists
- name: optional
- name: sets
- name: strings
  version: 2
- name: two-var-comprehensions
"""
_SIMPLE = {
    "bool": "BOOL",
    "bytes": "BYTES",
    "double": "DOUBLE",
    "duration": "DURATION",
    "dyn": "DYN",
    "int": "INT",
    "string": "STRING",
    "timestamp": "TIMESTAMP",
}
_TEXT = "text"
_OPAQUE: Mapping[str, Opaque] = {
    opaque.type.name: opaque
    for opaque in (
        *authorization.OPAQUE,
        formats.OPAQUE,
        *networks.OPAQUE,
        quantities.OPAQUE,
        urls.OPAQUE,
        versions.OPAQUE,
    )
}
_BY_PYTHON = {python: opaque for opaque in _OPAQUE.values() for python in opaque.python}
_PLAIN = ("bool", "bytes", "double", "int", "string")
DAY = 24 * 60 * 60
_COMPARED = ("_<_", "_<=_", "_>_", "_>=_")


@cache
def library() -> Any:
    """The module `cel_expr_python.cel`; raises Unavailable."""
    try:
        from cel_expr_python import cel  # noqa: PLC0415 - not there on every platform
    except ImportError as error:
        raise Unavailable(
            "CEL expressions need the package cel-expr-python, which is not installed or not made for this platform: "
            f"{error}"
        ) from error
    return cel


@cache
def kubernetes_functions() -> tuple[Function, ...]:
    return (
        *formats.FUNCTIONS,
        *lists.FUNCTIONS,
        *networks.FUNCTIONS,
        *quantities.FUNCTIONS,
        *regexes.functions(_Regexes()),
        *urls.FUNCTIONS,
        *versions.FUNCTIONS,
    )


@lru_cache(maxsize=64)
def checking(variables: tuple[tuple[str, Type], ...], functions: tuple[Function, ...] = ()) -> Any:
    """The environment that checks expressions over these variables."""
    cel = library()
    structs = Structs(variable for _, variable in variables)
    declared = defaultdict(list)
    for index, function in enumerate((*kubernetes_functions(), *functions)):
        declared[function.name].append(
            cel.Overload(
                id=f"{function.name}_{index}",
                return_type=_optional(function.returns) if function.optional else _declared(function.returns),
                parameters=[_declared(one) for one in function.parameters],
                is_member=function.member,
            )
        )
    for name in _COMPARED:  # numbers are compared whatever their types, but the library's checker does not know
        for one, other in ((INT, DOUBLE), (DOUBLE, INT)):
            types = [_declared(one), _declared(other)]
            declared[name].append(cel.Overload(f"{name}{one}_{other}", _declared(BOOL), types, False))
    extension = cel.CelExtension(
        "kubernetes", [cel.FunctionDecl(name, overloads) for name, overloads in declared.items()]
    )
    names = {name: _declared(variable, structs) for name, variable in variables}
    return cel.NewEnv(structs.pool, config=_config(), variables=names, extensions=[extension])


@lru_cache(maxsize=16)
def running(functions: tuple[Function, ...] = ()) -> Any:
    """The environment that runs what has been checked."""
    cel = library()
    alike: dict[tuple[str, bool, tuple[str, ...]], list[Function]] = defaultdict(list)
    for function in (*kubernetes_functions(), *functions):
        kinds = tuple("message" if one.name in _OPAQUE else one.name for one in function.parameters)
        name = PLAIN + function.name if function.optional else function.name
        alike[name, function.member, kinds].append(function)
    declared = defaultdict(list)
    for index, ((name, member, _), several) in enumerate(alike.items()):
        parameters = [_erased(parameter) for parameter in several[0].parameters]
        declared[name].append(
            cel.Overload(f"{name}_{index}", cel.Type.DYN, parameters, member, impl=_computing(several))
        )
    decls = [cel.FunctionDecl(name, overloads) for name, overloads in declared.items()]
    return cel.NewEnv(_run_pool(), config=_config(), extensions=[cel.CelExtension("kubernetes", decls)])


def kept(value: Any) -> Any:
    """A Python value as the library holds it: quantities, addresses, versions, times and durations are messages."""
    if (opaque := _BY_PYTHON.get(type(value))) is not None:
        return _message(opaque.type.name)(**{_TEXT: opaque.text(value)})
    if isinstance(value, timedelta):
        return Duration(seconds=value.days * DAY + value.seconds, nanos=value.microseconds * 1000)
    if isinstance(value, datetime):
        return kept_time(value)
    return value


def kept_time(moment: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(moment)
    return found


def _computing(functions: Sequence[Function]) -> Callable[..., Any]:
    """One implementation for overloads that are alike at run time: all opaque values are messages there."""
    first = functions[0]
    if all(parameter.name in _PLAIN for parameter in (*first.parameters, first.returns)):
        return first.compute
    by_types = {tuple(_opaque_name(parameter) for parameter in one.parameters): one for one in functions}

    def computed(*args: Any) -> Any:
        messages = [getattr(argument, "DESCRIPTOR", None) for argument in args]
        function = by_types.get(tuple(message.full_name if message else "" for message in messages))
        if function is None:
            raise ValueError(OVERLOAD)
        given = [
            _value(kind.full_name, message.text) if kind else message
            for kind, message in zip(messages, args, strict=True)
        ]
        return kept(function.compute(*given))

    return computed


@lru_cache(maxsize=4096)
def _value(name: str, text: str) -> Any:
    return _OPAQUE[name].value(text)


def _opaque_name(type_: Type) -> str:
    return type_.name if type_.name in _OPAQUE else ""


@cache
def _config() -> Any:
    return library().NewEnvConfigFromYaml(_EXTENSIONS)


@cache
def _run_pool() -> Any:
    return base_pool(opaque_field=_TEXT)


@cache
def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_run_pool().FindMessageTypeByName(name))


def _declared(type_: Type, structs: Structs | None = None) -> Any:
    types = library().Type
    inner: Sequence[Any] = [_declared(parameter, structs) for parameter in type_.parameters]
    match type_.name:
        case "list":
            return types.List(*inner)
        case "map":
            return types.Map(*inner)
        case "object" if structs is not None:
            return types(structs.name_of(type_))
        case name if name in _SIMPLE:
            return getattr(types, _SIMPLE[name])
        case name if name in {opaque_type.name for opaque_type in OPAQUE_TYPES}:
            return types(name)
    raise ValueError(f"{type_} cannot be declared here")


def _optional(inner: Type) -> Any:
    """The type of an optional, which the library gives away only as that of an expression."""
    env = library().NewEnv(base_pool(), config=_config(), variables={"value": _declared(inner)})
    return env.compile("optional.of(value)").return_type()


def _erased(type_: Type) -> Any:
    types = library().Type
    if type_.name == "list":
        return types.List(types.DYN)
    return types.Map(types.DYN, types.DYN) if type_.name == "map" else _declared(type_)


class _Regexes:
    """The engine behind `matches`, asked by expressions of its own."""

    def __init__(self) -> None:
        cel = library()
        config = cel.NewEnvConfigFromYaml("extensions:\n- name: regex\n- name: optional\n")
        env = cel.NewEnv(config=config, variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING})
        self._error = cel.Type.ERROR
        self._first = env.compile("regex.extract(text, pattern).orValue('')")
        self._every = env.compile("regex.extractAll(text, pattern)")
        self._matches = env.compile("text.matches(pattern)")

    def first(self, text: str, pattern: str) -> str:
        return str(self._asked(self._first, text, pattern))

    def every(self, text: str, pattern: str) -> Sequence[str]:
        found: Sequence[str] = self._asked(self._every, text, pattern)
        return found

    def matches(self, text: str, pattern: str) -> bool:
        return bool(self._asked(self._matches, text, pattern))

    def _asked(self, program: Any, text: str, pattern: str) -> Any:
        found = program.eval(data={"text": text, "pattern": pattern})
        if found.type() == self._error:
            raise ValueError(str(found.value()).partition(": ")[2])
        return found.plain_value()


@lru_cache(maxsize=256)
def wrong_literal(function: str, text: str) -> str:
    """Returns the problem of a literal pattern, duration or timestamp; empty when it is valid."""
    cel = library()
    call = f"{function}(text)" if function in ("duration", "timestamp") else "''.matches(text)"
    outcome = cel.NewEnv(variables={"text": cel.Type.STRING}).compile(call).eval(data={"text": text})
    return str(outcome.value()) if outcome.type() == cel.Type.ERROR else ""

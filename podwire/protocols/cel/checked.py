"""Reads `cel.expr.CheckedExpr`, the output of the type checker, as a tree."""

from collections.abc import Container, Iterator
from functools import cache
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from podwire.protocols.cel.syntax import Call, Comprehension, Const, Ident, Made, Node, Select, Tree


def read(serialized: bytes) -> Tree:
    """The tree that the library's serialized form holds."""
    wrapped = any_pb2.Any.FromString(serialized)
    checked = _checked_expr().FromString(wrapped.value)
    return Tree(_node(checked.expr), dict(checked.source_info.positions))


PLAIN = "@plain_"
"""Before the name of a function that gives an optional, that of the same function without."""


def made_optional(serialized: bytes, functions: Container[str]) -> bytes:
    """The expression with calls of these functions as optionals of what they give: Python cannot give any itself."""
    wrapped = any_pb2.Any.FromString(serialized)
    checked = _checked_expr().FromString(wrapped.value)
    nodes = list(_below(checked.expr))
    number = max(node.id for node in nodes)
    for node in nodes:
        if node.WhichOneof("expr_kind") == "call_expr" and node.call_expr.function in functions:
            inner = type(node)()
            inner.CopyFrom(node)
            number += 1
            inner.id, inner.call_expr.function = number, PLAIN + node.call_expr.function
            node.call_expr.Clear()
            node.call_expr.function = "optional.ofNonZeroValue"
            node.call_expr.args.add().CopyFrom(inner)
    wrapped.value = checked.SerializeToString()
    return wrapped.SerializeToString()


def _below(message: Any) -> Iterator[Any]:
    """The expressions in a message, inner ones first: they are changed before they are copied."""
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in value if field.is_repeated else (value,):
                yield from _below(item)
    if message.DESCRIPTOR.name == "Expr":
        yield message


def _node(expr: Any) -> Node:
    kind = expr.WhichOneof("expr_kind")
    match kind:
        case "const_expr":
            constant = expr.const_expr.WhichOneof("constant_kind")
            return Const(expr.id, None if constant == "null_value" else getattr(expr.const_expr, constant))
        case "ident_expr":
            return Ident(expr.id, expr.ident_expr.name)
        case "select_expr":
            select = expr.select_expr
            return Select(expr.id, _node(select.operand), select.field, select.test_only)
        case "call_expr":
            call = expr.call_expr
            member = call.HasField("target")
            args = [call.target, *call.args] if member else call.args
            return Call(expr.id, call.function, tuple(map(_node, args)), member)
        case "list_expr":
            return Made(expr.id, tuple(map(_node, expr.list_expr.elements)))
        case "struct_expr":
            return _made(expr)
        case _:
            return _comprehension(expr.id, expr.comprehension_expr)


def _made(expr: Any) -> Made:
    parts: list[Node] = []
    for entry in expr.struct_expr.entries:
        if entry.HasField("map_key"):
            parts.append(_node(entry.map_key))
        parts.append(_node(entry.value))
    message = expr.struct_expr.message_name
    return Made(expr.id, tuple(parts), message, keyed=not message)


def _comprehension(number: int, expression: Any) -> Comprehension:
    return Comprehension(
        id=number,
        variables=tuple(filter(None, (expression.iter_var, expression.iter_var2))),
        range=_node(expression.iter_range),
        accumulator=expression.accu_var,
        start=_node(expression.accu_init),
        condition=_node(expression.loop_condition),
        step=_node(expression.loop_step),
        result=_node(expression.result),
    )


_MESSAGES = {
    "CheckedExpr": "4 expr Expr, 5 source_info SourceInfo",
    "SourceInfo": "4 positions *Position",
    "Position": "1 key int64, 2 value int32",
    "Expr": "2 id int64, 3 const_expr |Constant, 4 ident_expr |Ident, 5 select_expr |Select, 6 call_expr |Call, "
    "7 list_expr |List, 8 struct_expr |Struct, 9 comprehension_expr |Comprehension",
    "Constant": "1 null_value |int64, 2 bool_value |bool, 3 int64_value |int64, 4 uint64_value |uint64, "
    "5 double_value |double, 6 string_value |string, 7 bytes_value |bytes, 8 duration_value |bytes, "
    "9 timestamp_value |bytes",
    "Ident": "1 name string",
    "Select": "1 operand Expr, 2 field string, 3 test_only bool",
    "Call": "1 target Expr, 2 function string, 3 args *Expr",
    "List": "1 elements *Expr",
    "Struct": "1 message_name string, 2 entries *Entry",
    "Entry": "2 field_key string, 3 map_key Expr, 4 value Expr",
    "Comprehension": "1 iter_var string, 8 iter_var2 string, 2 iter_range Expr, 3 accu_var string, 4 accu_init Expr, "
    "5 loop_condition Expr, 6 loop_step Expr, 7 result Expr",
}
"""The parts of cel/expr/checked.proto and syntax.proto that are read: number, name and type of each field; `*` is
repeated, `|` is one of several."""

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "double": _Field.TYPE_DOUBLE,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint64": _Field.TYPE_UINT64,
}
_ONEOFS = {"Expr": "expr_kind", "Constant": "constant_kind"}


@cache
def _checked_expr() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="read.proto", package="read", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        message.options.map_entry = name == "Position"
        if name in _ONEOFS:
            message.oneof_decl.add(name=_ONEOFS[name])
        for part in fields.split(", "):
            _declare(message, *part.split())
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("read.CheckedExpr"))


def _declare(message: Any, number: str, name: str, declaration: str) -> None:
    kind = declaration.lstrip("*|")
    label = _Field.LABEL_REPEATED if declaration.startswith("*") else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=int(number), label=label, type=_KINDS.get(kind, _Field.TYPE_MESSAGE))
    if kind not in _KINDS:
        field.type_name = f".read.{kind}"
    if declaration.startswith("|"):
        field.oneof_index = 0

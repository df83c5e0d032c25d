"""A checked expression as a tree of plain values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Const:
    id: int
    value: Any


@dataclass(frozen=True, slots=True)
class Ident:
    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    id: int
    operand: "Node"
    field: str
    test_only: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an operator or a method: whose target is its first argument."""

    id: int
    function: str
    args: tuple["Node", ...]
    member: bool


@dataclass(frozen=True, slots=True)
class Made:
    """A list, a map or a message written down: the parts of a map are keys and values in turn, `message` names the
    message."""

    id: int
    parts: tuple["Node", ...]
    message: str = ""
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Comprehension:
    id: int
    variables: tuple[str, ...]
    range: "Node"
    accumulator: str
    start: "Node"
    condition: "Node"
    step: "Node"
    result: "Node"


Node = Const | Ident | Select | Call | Made | Comprehension


@dataclass(frozen=True, slots=True)
class Tree:
    """The whole of an expression, and where in the text its nodes begin."""

    root: Node
    offsets: Mapping[int, int]


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(below(node))


def below(node: Node) -> tuple[Node, ...]:
    match node:
        case Select(operand=operand):
            return (operand,)
        case Call(args=args):
            return args
        case Made(parts=parts):
            return parts
        case Comprehension():
            return (node.range, node.start, node.condition, node.step, node.result)
        case _:
            return ()


def binds(node: Node) -> bool:
    """Whether a node is a cel.bind: a loop over nothing, which never takes its step."""
    if not isinstance(node, Comprehension):
        return False
    nothing = isinstance(node.range, Made) and not node.range.parts
    return nothing and isinstance(node.condition, Const) and node.condition.value is False


def names_in(tree: Tree) -> frozenset[str]:
    """The identifiers that an expression speaks of."""
    idle = {node.step.id for node in walk(tree.root) if isinstance(node, Comprehension) and binds(node)}
    return frozenset(
        node.name
        for node in walk(tree.root)
        if isinstance(node, Ident) and not node.name.startswith("@") and node.id not in idle
    )

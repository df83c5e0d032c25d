"""Estimates the worst-case cost of an expression before it runs, in the units of cel-go: about 50 ns each.

An expression is walked with sizes instead of values: of `self.names` no names are known, but how many they are at most
and how long the longest. Short-circuits are taken as not taken, so the truth is never above the estimate.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from podwire.protocols.cel.syntax import Call, Comprehension, Const, Ident, Made, Node, Select, Tree, binds

MOST = 2**64 - 1
"""Where counting ends."""
STRING_TRAVERSAL = 0.1
REGEX_STEP = 0.25
LIST, MAP = 10, 30
LONGEST_FORMAT = 128
"""Characters of a named format's pattern."""
_LONGEST_SENTENCE = 512
_LONGEST_SCALAR = 64
"""Characters of a number or a time as a text."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a value is at most: characters, elements or entries; 1 for what has no parts.

    `inside` is the size of elements or values, `key` that of keys, `fields` those of an object's fields.
    """

    most: int = 1
    inside: "Size | None" = None
    key: "Size | None" = None
    fields: Mapping[str, "Size"] = field(default_factory=dict)

    @property
    def element(self) -> "Size":
        return self.inside or UNKNOWN

    def at(self, name: str) -> "Size":
        return self.fields.get(name) or self.element

    def of(self, most: int) -> "Size":
        return Size(min(most, MOST), self.inside, self.key, self.fields)


UNKNOWN = Size(MOST)
ONE = Size()


def estimate(tree: Tree, sizes: Mapping[str, Size]) -> int:
    """The cost of an expression at worst, over variables that are at most so large."""
    return min(_Walk().estimate(tree.root, dict(sizes))[0], MOST)


Estimate = tuple[int, Size]
Scope = dict[str, Size]


class _Walk:
    """The cost of a node and the size of its value."""

    def estimate(self, node: Node, scope: Scope) -> Estimate:
        match node:
            case Const():
                return 0, Size(len(node.value)) if isinstance(node.value, str | bytes) else ONE
            case Ident():
                return 1, scope.get(node.name, UNKNOWN)
            case Select():
                cost, size = self.estimate(node.operand, scope)
                return (cost, ONE) if node.test_only else (cost + 1, size.at(node.field))
            case Made():
                return self._made(node, scope)
            case Comprehension():
                return self._comprehension(node, scope)
            case _:
                return self._call(node, scope)

    def _made(self, node: Made, scope: Scope) -> Estimate:
        estimates = [self.estimate(part, scope) for part in node.parts]
        cost = sum(part_cost for part_cost, _ in estimates)
        sizes = [size for _, size in estimates]
        if node.keyed:
            return cost + MAP, Size(len(sizes) // 2, _larger(sizes[1::2]), _larger(sizes[::2]))
        return cost + LIST, Size(len(sizes), _larger(sizes))

    def _comprehension(self, node: Comprehension, scope: Scope) -> Estimate:
        over_cost, over = self.estimate(node.range, scope)
        start_cost, start = self.estimate(node.start, scope)
        if binds(node):
            cost, size = self.estimate(node.result, {**scope, node.accumulator: start})
            return over_cost + start_cost + cost, size
        inner = {**scope, **_iterated(node, over), node.accumulator: start}
        condition, _ = self.estimate(node.condition, inner)
        step, after = self.estimate(node.step, inner)
        grown = after.of(start.most + over.most * max(after.most - start.most, 0))
        cost, size = self.estimate(node.result, {**scope, node.accumulator: grown})
        return over_cost + start_cost + cost + over.most * (condition + step), size

    def _call(self, node: Call, scope: Scope) -> Estimate:
        estimates = [self.estimate(argument, scope) for argument in node.args]
        sizes = [size for _, size in estimates]
        if node.function == "_?_:_":
            asked, *either = (cost for cost, _ in estimates)
            return asked + max(either), _larger(sizes[1:])
        own, size = _FUNCTIONS.get(node.function, _plain)(node, sizes)
        return sum(cost for cost, _ in estimates) + own, size


def _iterated(node: Comprehension, over: Size) -> Scope:
    if len(node.variables) == 1:
        return {node.variables[0]: over.key or over.element}
    return dict(zip(node.variables, (over.key or ONE, over.element), strict=False))


def _larger(sizes: list[Size]) -> Size:
    """A size that covers all of these."""
    if not sizes:
        return Size(0)
    first, *others = sizes
    if all(other == first for other in others):
        return first
    insides = [size.inside for size in sizes if size.inside]
    keys = [size.key for size in sizes if size.key]
    fields = {name: _larger([size.fields[name] for size in sizes if name in size.fields])
              for name in {name for size in sizes for name in size.fields}}  # fmt: skip
    most = max(size.most for size in sizes)
    return Size(most, _larger(insides) if insides else None, _larger(keys) if keys else None, fields)


def _read(size: Size, factor: float = STRING_TRAVERSAL) -> int:
    """Looking at each character."""
    return min(math.ceil(size.most * factor), MOST)


Rule = Callable[[Call, list[Size]], Estimate]


def _parsed(_node: Call, sizes: list[Size]) -> Estimate:
    """A text that is looked at once, and becomes something of which only functions know the parts."""
    return _read(sizes[0]), ONE


def _parsed_twice(_node: Call, sizes: list[Size]) -> Estimate:
    return _read(sizes[0], 2 * STRING_TRAVERSAL), ONE


def _validated(_node: Call, sizes: list[Size]) -> Estimate:
    return math.ceil(_read(sizes[1]) * LONGEST_FORMAT * REGEX_STEP), Size(1, Size(_LONGEST_SENTENCE))


def _contains(_node: Call, sizes: list[Size]) -> Estimate:
    """Two addresses beside each other; a text is parsed first."""
    return 6 + (_read(sizes[1]) if sizes[1].most > 1 else 0), ONE


def _compared(_node: Call, sizes: list[Size]) -> Estimate:
    return min(map(_read, sizes)), ONE


def _ordered(_node: Call, sizes: list[Size]) -> Estimate:
    return max(min(map(_read, sizes)), 1), ONE


def _matched(_node: Call, sizes: list[Size]) -> Estimate:
    text, pattern = sizes[0], sizes[1]
    return _read(text.of(text.most + 1)) * max(_read(pattern, REGEX_STEP), 1), ONE


def _found(node: Call, sizes: list[Size]) -> Estimate:
    return _matched(node, sizes)[0], sizes[0]


def _found_all(node: Call, sizes: list[Size]) -> Estimate:
    return _matched(node, sizes)[0], Size(sizes[0].most + 1, sizes[0])


def _contained(_node: Call, sizes: list[Size]) -> Estimate:
    return max(_read(sizes[0]), 1) * max(_read(sizes[1]), 1), ONE


def _begins(_node: Call, sizes: list[Size]) -> Estimate:
    return _read(sizes[1]), ONE


def _added(_node: Call, sizes: list[Size]) -> Estimate:
    both = _larger(sizes).of(sum(size.most for size in sizes))
    return (1 if both.inside else _read(both)), both


def _within(_node: Call, sizes: list[Size]) -> Estimate:
    return sizes[1].most, ONE


def _indexed(_node: Call, sizes: list[Size]) -> Estimate:
    return 1, sizes[0].element


def _selected(node: Call, sizes: list[Size]) -> Estimate:
    name = node.args[1]
    return 1, sizes[0].at(str(name.value)) if isinstance(name, Const) else sizes[0].element


def _same(_node: Call, sizes: list[Size]) -> Estimate:
    """A value of the same size at most, made by looking at all of the first."""
    return max(_read(sizes[0]), 1), sizes[0]


def _passed(_node: Call, sizes: list[Size]) -> Estimate:
    return 1, _larger(sizes)


def _walked(_node: Call, sizes: list[Size]) -> Estimate:
    """Each element looked at as a whole, once; or each character of a text."""
    if sizes[0].inside is None:
        return _read(sizes[0]), sizes[0]
    text = _read(sizes[0].element) if sizes[0].element.most > 1 else 0
    return min(sizes[0].most * (1 + text), MOST), sizes[0].element


def _located(node: Call, sizes: list[Size]) -> Estimate:
    return _walked(node, sizes)[0], ONE


def _sorted(_node: Call, sizes: list[Size]) -> Estimate:
    return min(sizes[0].most ** 2 * max(_read(sizes[0].element), 1), MOST), sizes[0]


def _between(_node: Call, sizes: list[Size]) -> Estimate:
    """Each element of one set beside each of the other."""
    return max(sizes[0].most * sizes[1].most, 1), ONE


def _split(node: Call, sizes: list[Size]) -> Estimate:
    limit = node.args[2].value if len(node.args) > 2 and isinstance(node.args[2], Const) else -1
    most = limit if isinstance(limit, int) and limit >= 0 else sizes[0].most
    return _read(sizes[0], 2 * STRING_TRAVERSAL), Size(most, Size(sizes[0].most))


def _joined(_node: Call, sizes: list[Size]) -> Estimate:
    separator = sizes[1].most if len(sizes) > 1 else 0
    text = Size(min(sizes[0].most * (sizes[0].element.most + separator), MOST))
    return max(_read(text), 1), text


def _replaced(node: Call, sizes: list[Size]) -> Estimate:
    """Every character may be replaced, unless it is known that nothing longer comes in."""
    old = node.args[1]
    grows = not isinstance(old, Const) or len(old.value) == 0 or sizes[2].most > len(old.value)
    most = (sizes[0].most + 1) * max(sizes[2].most, 1) + sizes[0].most if grows else sizes[0].most
    return _read(sizes[0], 2 * STRING_TRAVERSAL), Size(min(most, MOST))


def _formatted(_node: Call, sizes: list[Size]) -> Estimate:
    values = max(sizes[1].element.most, _LONGEST_SCALAR)
    text = Size(min(sizes[0].most * values, MOST))
    return max(_read(text), 1), text


def _flattened(_node: Call, sizes: list[Size]) -> Estimate:
    flat = sizes[0].element.of(sizes[0].most * sizes[0].element.most)
    return flat.most, flat


def _ranged(node: Call, _sizes: list[Size]) -> Estimate:
    end = node.args[0]
    count = max(end.value, 0) if isinstance(end, Const) and isinstance(end.value, int) else MOST
    return count, Size(count, ONE)


def _as_text(_node: Call, sizes: list[Size]) -> Estimate:
    return max(_read(sizes[0]), 1), Size(max(sizes[0].most, _LONGEST_SCALAR))


def _as_bytes(_node: Call, sizes: list[Size]) -> Estimate:
    return max(_read(sizes[0]), 1), Size(min(sizes[0].most * 4, MOST))


def _quoted(_node: Call, sizes: list[Size]) -> Estimate:
    return max(_read(sizes[0]), 1), Size(min(sizes[0].most * 2 + 2, MOST))


def _plain(_node: Call, _sizes: list[Size]) -> Estimate:
    return 1, ONE


def _free(_node: Call, _sizes: list[Size]) -> Estimate:
    return 0, ONE


_FUNCTIONS: Mapping[str, Rule] = {
    "_&&_": _free,
    "_||_": _free,
    "@not_strictly_false": _free,
    "!_": _plain,
    "-_": _plain,
    "size": _plain,
    "type": _plain,
    "_==_": _compared,
    "_!=_": _compared,
    "_<_": _ordered,
    "_<=_": _ordered,
    "_>_": _ordered,
    "_>=_": _ordered,
    "_+_": _added,
    "_[_]": _indexed,
    "_[?_]": _indexed,
    "_?._": _selected,
    "@in": _within,
    "matches": _matched,
    "find": _found,
    "findAll": _found_all,
    "contains": _contained,
    "startsWith": _begins,
    "endsWith": _begins,
    "dyn": _passed,
    "optional.of": _passed,
    "optional.ofNonZeroValue": _passed,
    "value": _passed,
    "or": _passed,
    "orValue": _passed,
    "hasValue": _plain,
    "string": _as_text,
    "bytes": _as_bytes,
    "strings.quote": _quoted,
    "lowerAscii": _same,
    "upperAscii": _same,
    "trim": _same,
    "substring": _same,
    "reverse": _same,
    "slice": _same,
    "charAt": _same,
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _formatted,
    "isSorted": _located,
    "indexOf": _located,
    "lastIndexOf": _located,
    "sum": _walked,
    "min": _walked,
    "max": _walked,
    "sort": _sorted,
    "@sortByAssociatedKeys": _sorted,
    "distinct": _sorted,
    "flatten": _flattened,
    "lists.range": _ranged,
    "cidr": _parsed,
    "ip": _parsed,
    "ip.isCanonical": _parsed_twice,
    "isCIDR": _parsed,
    "isIP": _parsed,
    "isQuantity": _parsed,
    "isSemver": _parsed,
    "quantity": _parsed,
    "semver": _parsed,
    "url": _same,
    "containsIP": _contains,
    "containsCIDR": _contains,
    "validate": _validated,
    "getScheme": lambda _node, sizes: (1, sizes[0]),
    "getHost": lambda _node, sizes: (1, sizes[0]),
    "getHostname": lambda _node, sizes: (1, sizes[0]),
    "getPort": lambda _node, sizes: (1, sizes[0]),
    "getEscapedPath": lambda _node, sizes: (1, sizes[0].of(sizes[0].most * 3)),
    "sets.contains": _between,
    "sets.equivalent": _between,
    "sets.intersects": _between,
    "getQuery": lambda _node, sizes: (1, Size(sizes[0].most, Size(sizes[0].most, sizes[0]))),
}

"""JSON Patch (RFC 6902): a list of operations, all of which apply or none.

Containers are copied when an operation first changes them and are ours from then on, so the cost of many operations
on one long list is not its square. What is moved and copied is measured: an object can be doubled with a short
operation, and nested deeper with another.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podwire.kinds.patches import PatchError
from podwire.protocols.k8sapi.codec import MAX_DEPTH

MAX_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024
"""Characters that `copy` and `move` may move in one patch: as many as the largest request body."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")
_NEEDS_VALUE = ("add", "replace", "test")
_NEEDS_FROM = ("move", "copy")
_OPERATIONS = (*_NEEDS_VALUE, *_NEEDS_FROM, "remove")

Pointer = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Operation:
    number: int
    name: str
    path: Pointer
    source: Pointer = ()
    value: Any = None

    def fails(self, why: str, *, code: int = 422) -> PatchError:
        return PatchError(code, f"operation {self.number}: {self.name} {_shown(self.path)}: {why}")


def apply(obj: Any, operations: Any) -> Any:
    """Returns the object after all operations, in order. Raises PatchError."""
    if not isinstance(operations, list):
        raise PatchError(400, "a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            413, f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    parsed = [_parse(number, entry) for number, entry in enumerate(operations)]
    document = _Document(obj)
    for operation in parsed:
        document.run(operation)
    return document.root


def _parse(number: int, given: Any) -> _Operation:
    if not isinstance(given, dict):
        raise PatchError(400, f"operation {number}: must be an object")
    name = given.get("op")
    if name not in _OPERATIONS:
        raise PatchError(422, f"operation {number}: op must be one of {', '.join(sorted(_OPERATIONS))}")
    if name in _NEEDS_VALUE and "value" not in given:
        raise PatchError(400, f"operation {number}: {name} needs a value")
    source = _pointer(number, "from", given.get("from")) if name in _NEEDS_FROM else ()
    return _Operation(number, name, _pointer(number, "path", given.get("path")), source, given.get("value"))


def _pointer(number: int, member: str, text: Any) -> Pointer:
    """RFC 6901. A pointer longer than the depth of any object is rejected before it is walked."""
    if not isinstance(text, str) or (text and text[0] != "/") or _BAD_ESCAPE.search(text):
        raise PatchError(400, f"operation {number}: {member} must be a JSON pointer")
    tokens = text.split("/")[1:]
    if len(tokens) > MAX_DEPTH:
        raise PatchError(422, f"operation {number}: {member} is more than {MAX_DEPTH} levels deep")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens)


class _Document:
    """The object as it changes. `_ours` are the containers made here, by id, kept alive so that an id stays theirs."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._ours: dict[int, Any] = {}
        self._carried = 0
        self._run: dict[str, Callable[[_Operation], None]] = {
            "add": self._add,
            "remove": self._remove,
            "replace": self._replace,
            "move": self._move,
            "copy": self._copy,
            "test": self._test,
        }

    def run(self, operation: _Operation) -> None:
        self._run[operation.name](operation)

    def _add(self, operation: _Operation) -> None:
        self._check_depth(operation, operation.value)
        self._put(operation, operation.value)

    def _put(self, operation: _Operation, value: Any) -> None:
        if not operation.path:
            self.root = value
            return
        parent = self._parent(operation, operation.path)
        key = operation.path[-1]
        if isinstance(parent, dict):
            parent[key] = value
        else:
            self._shift(operation, parent)
            parent.insert(len(parent) if key == "-" else _index(operation, key, len(parent)), value)

    def _remove(self, operation: _Operation) -> None:
        self._take(operation, operation.path)

    def _take(self, operation: _Operation, path: Pointer) -> Any:
        if not path:
            raise operation.fails("the whole object cannot be removed")
        parent = self._parent(operation, path)
        if isinstance(parent, dict):
            if path[-1] not in parent:
                raise _missing(operation, path)
            return parent.pop(path[-1])
        self._shift(operation, parent)
        return parent.pop(_index(operation, path[-1], len(parent) - 1))

    def _replace(self, operation: _Operation) -> None:
        """Replaces or sets a member: RFC 6902 rejects an absent one, Kubernetes never did and clients rely on it."""
        self._check_depth(operation, operation.value)
        if not operation.path:
            self.root = operation.value
            return
        parent = self._parent(operation, operation.path)
        key = operation.path[-1]
        parent[key if isinstance(parent, dict) else _index(operation, key, len(parent) - 1)] = operation.value

    def _move(self, operation: _Operation) -> None:
        value = self._find(operation, operation.source)
        if operation.path == operation.source:
            return
        if operation.path[: len(operation.source)] == operation.source:
            raise operation.fails("a value cannot be moved into itself")
        self._carry(operation, value)
        self._take(operation, operation.source)
        self._put(operation, value)

    def _copy(self, operation: _Operation) -> None:
        value = self._find(operation, operation.source)
        self._carry(operation, value)
        self._share(value)
        self._put(operation, value)

    def _test(self, operation: _Operation) -> None:
        """A member that is not there is null, which is how clients test that it is not."""
        parent = self._find(operation, operation.path[:-1])
        absent = operation.path and isinstance(parent, dict) and operation.path[-1] not in parent
        value = None if absent else self._find(operation, operation.path)
        if not _same(value, operation.value):
            raise operation.fails("test failed")

    def _carry(self, operation: _Operation, value: Any) -> None:
        self._spend(operation, self._check_depth(operation, value))

    def _check_depth(self, operation: _Operation, value: Any) -> int:
        """Returns the size of the value, if it is not too deep for its place."""
        size, height = _measure(value)
        if len(operation.path) + height > MAX_DEPTH:
            raise operation.fails(f"the result is nested more than {MAX_DEPTH} levels deep")
        return size

    def _shift(self, operation: _Operation, items: list[Any]) -> None:
        """Counts the elements that an insertion or removal shifts: ten thousand of these in a long list are costly."""
        self._spend(operation, len(items) // 64)

    def _spend(self, operation: _Operation, size: int) -> None:
        self._carried += size
        if self._carried > MAX_COPIED:
            raise operation.fails("the patch moves and copies too much", code=413)

    def _share(self, value: Any) -> None:
        """A copied value has two places now, so neither may change it in place."""
        level = [value]
        while level:
            here = [node for node in level if isinstance(node, dict | list)]
            for container in here:
                self._ours.pop(id(container), None)
            level = [
                child
                for container in here
                for child in (container.values() if isinstance(container, dict) else container)
            ]

    def _find(self, operation: _Operation, path: Pointer) -> Any:
        node = self.root
        for token in path:
            node = _child(operation, path, node, token)
        return node

    def _parent(self, operation: _Operation, path: Pointer) -> Any:
        """Returns the container that holds the last token, ours to change, as are all above it."""
        node = self.root = self._own(self.root)
        for token in path[:-1]:
            child = self._own(_child(operation, path, node, token))
            node[token if isinstance(node, dict) else int(token)] = child
            node = child
        if not isinstance(node, dict | list):
            raise _missing(operation, path)
        return node

    def _own(self, node: Any) -> Any:
        if id(node) in self._ours or not isinstance(node, dict | list):
            return node
        copied = node.copy()
        self._ours[id(copied)] = copied
        return copied


def _child(operation: _Operation, path: Pointer, node: Any, token: str) -> Any:
    if isinstance(node, dict) and token in node:
        return node[token]
    if isinstance(node, list):
        return node[_index(operation, token, len(node) - 1)]
    raise _missing(operation, path)


def _index(operation: _Operation, token: str, last: int) -> int:
    if not _INDEX.fullmatch(token):
        raise operation.fails(f"{token!r} is not a list index")
    if int(token) > last:
        raise operation.fails(f"index {token} is out of bounds")
    return int(token)


def _missing(operation: _Operation, path: Pointer) -> PatchError:
    return operation.fails(f"the object has no {_shown(path)}")


def _shown(path: Pointer) -> str:
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in path) or '""'


def _measure(value: Any) -> tuple[int, int]:
    """About how many characters a value has as JSON, and how many levels."""
    size = height = 0
    level = [value]
    while level:
        below: list[Any] = []
        containers = False
        for node in level:
            size += len(node) + 2 if isinstance(node, str) else 4
            if isinstance(node, dict):
                size += sum(map(len, node)) + 4 * len(node)
                below += node.values()
                containers = True
            elif isinstance(node, list):
                below += node
                containers = True
        height += containers
        level = below
    return size, height


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(_same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)

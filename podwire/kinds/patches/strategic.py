"""Strategic merge patch (kubernetes/community, contributors/devel/sig-api-machinery/strategic-merge-patch.md).

A merge patch that knows from the Go types which lists are merged: `patchStrategy` and `patchMergeKey`, which a Shape's
`Field` has as `strategies` and `merge_key`.

    value in the patch          strategy of the field    result
    null                        any                      the member is removed
    object                      merge (default)          merged member by member
    object                      replace                  replaced
    list                        replace (default)        replaced
    list of scalars             merge                    the union
    list of objects             merge, with a key        elements with the same key are merged, others appended

    directive                            where                     effect
    $patch: replace                      object                    it replaces the object, without the directive
    $patch: replace                      element of a list         the other elements of the patch replace the list
    $patch: delete                       object                    the object is emptied
    $patch: delete, <merge key>: value   element of a list         the element with that key is removed
    $retainKeys: [names]                 object                    all other members are removed (union types)
    $deleteFromPrimitiveList/x: [...]    beside the list x         these scalars are removed from x
    $setElementOrder/x: [...]            beside the list x         x gets this order

Order: elements that the patch (or its `$setElementOrder`) names come in its order; the others keep their place before
the first named element that they preceded.
"""

from collections.abc import Callable
from typing import Any

from podwire.kinds.patches import PatchError
from podwire.kinds.shape import Field, Shape

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"
_ABSENT = object()

Object = dict[str, Any]
Identity = Callable[[Any], Any]
"""Gives the identity of a list element: its merge key, or itself for a scalar."""


def apply(obj: Object, patch: Any, shape: Shape) -> Object:
    """Returns the object after the patch. Raises PatchError."""
    if not isinstance(patch, dict):
        raise PatchError(400, "a strategic merge patch must be an object")
    return _merged_object(obj, patch, shape, "")


def _merged_object(original: Object, patch: Object, shape: Shape | None, path: str) -> Object:
    directive = _directive(patch, path)
    if directive == "replace":
        return _members(patch)
    if directive == "delete":
        return {}
    merged = _retained(original, patch, path)
    for key, value in patch.items():
        if key.startswith(_ORDER):
            _order(merged, patch, key.removeprefix(_ORDER), shape, path)
        elif key.startswith(_REMOVE):
            _remove(merged, key.removeprefix(_REMOVE), value, path)
        elif key not in (_PATCH, _RETAIN) and _ORDER + key not in patch:
            _merge_member(merged, key, value, shape, path)
    return merged


def _merge_member(merged: Object, key: str, value: Any, shape: Shape | None, path: str) -> None:
    here = _below(path, key)
    current = merged.get(key)
    member = shape.field(key) if shape else None
    strategies = member.strategies if member else ()
    result: Any
    if isinstance(value, dict) and isinstance(current, dict) and "replace" not in strategies:
        result = _merged_object(current, value, member.shape if member else None, here)
    elif isinstance(value, list) and isinstance(current, list) and "merge" in strategies:
        result = _merged_list(current, value, member, here)
    else:
        result = _taken(value)
    if result is _ABSENT:
        merged.pop(key, None)
    else:
        merged[key] = result


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _directive(patch: Object, path: str) -> str:
    directive = patch.get(_PATCH, "merge")
    if directive not in ("merge", "replace", "delete"):
        raise PatchError(400, f"{path or 'the patch'}: unknown patch type: {directive}")
    return str(directive)


def _retained(original: Object, patch: Object, path: str) -> Object:
    """Returns a copy of the object, less what `$retainKeys` does not name."""
    if _RETAIN not in patch:
        return dict(original)
    names = patch[_RETAIN]
    if not _all_strings(names):
        raise PatchError(400, f"{path or 'the patch'}: invalid patch format of retainKeys")
    kept = set(names)
    for key, value in patch.items():
        if value is not None and key not in kept and not key.startswith("$"):
            raise PatchError(400, f"{path or 'the patch'}: {key} is set, but $retainKeys does not name it")
    return {key: value for key, value in original.items() if key in kept}


def _all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


def _taken(value: Any) -> Any:
    """Returns a value of the patch that has nothing to merge with, without directives; _ABSENT if it is a deletion."""
    if isinstance(value, list):
        return [taken for taken in map(_taken, value) if taken is not _ABSENT]
    if not isinstance(value, dict):
        return _ABSENT if value is None else value
    if value.get(_PATCH) == "delete" or value == {_PATCH: "replace"}:
        return _ABSENT
    return _members(value)


def _members(patch: Object) -> Object:
    """Returns the members of an object without nulls and directives."""
    members = {key: _taken(value) for key, value in patch.items() if not _is_directive(key)}
    return {key: value for key, value in members.items() if value is not _ABSENT}


def _is_directive(key: str) -> bool:
    return key in (_PATCH, _RETAIN) or key.startswith((_ORDER, _REMOVE))


def _remove(merged: Object, key: str, values: Any, path: str) -> None:
    if not isinstance(values, list):
        raise PatchError(400, f"{_below(path, key)}: invalid patch format of primitive list")
    current = merged.get(key)
    if isinstance(current, list):
        unwanted = {_itself(value) for value in values}
        merged[key] = [element for element in current if _itself(element) not in unwanted]


def _order(merged: Object, patch: Object, key: str, shape: Shape | None, path: str) -> None:
    """Merge the list `key`, if the patch has it, and put it in the order that the patch sets."""
    here = _below(path, key)
    order = patch[_ORDER + key]
    if not isinstance(order, list):
        raise PatchError(400, f"{here}: invalid patch format of setElementOrder list")
    member = shape.field(key) if shape else None
    identity = _identity(member)
    _check_order(patch.get(key), order, identity, here)
    before = merged.get(key)
    if key in patch:
        _merge_member(merged, key, patch[key], shape, path)
    after = merged.get(key)
    if isinstance(after, list):
        merged[key] = _ordered(after, order, before if isinstance(before, list) else [], identity)


def _check_order(patched: Any, order: list[Any], identity: Identity, path: str) -> None:
    """Checks that $setElementOrder lists the elements that the patch sets in their order; both may have more."""
    if not isinstance(patched, list) or not order:
        return
    rest = iter(map(identity, order))  # `in` consumes it up to the match, so later elements must follow
    for element in patched:
        if not (isinstance(element, dict) and _PATCH in element) and identity(element) not in rest:
            raise PatchError(422, f"{path}: the order in the patch list doesn't match its $setElementOrder list")


def _merged_list(original: list[Any], patch: list[Any], member: Field | None, path: str) -> list[Any]:
    if not any(isinstance(element, dict) for element in (*original, *patch)):
        unique = {_itself(element): element for element in (*original, *patch)}
        return _ordered(list(unique.values()), patch, original, _itself)
    key = member.merge_key if member else ""
    if not key:
        raise PatchError(422, f"{path}: cannot merge lists without merge key")
    left, named, replaced = _special_elements(original, patch, key, path)
    if replaced:
        return [_taken(element) for element in named]
    identity = _identity(member)
    positions: dict[Any, int] = {}
    for index, element in enumerate(left):
        positions.setdefault(identity(element), index)
    merged = list(left)
    for element in named:
        at = positions.setdefault(identity(element), len(merged))
        if at == len(merged):
            merged.append(_members(element))
        else:
            merged[at] = _merged_object(merged[at], element, member.shape.element if member else None, f"{path}[{at}]")
    return _ordered(merged, named, left, identity)


def _special_elements(
    original: list[Any], patch: list[Any], key: str, path: str
) -> tuple[list[Object], list[Object], bool]:
    """Returns the original without what the patch deletes, the patch's other elements, and whether they replace the
    list."""
    named: list[Object] = []
    deleted: set[Any] = set()
    replaced = False
    for element in patch:
        if not isinstance(element, dict):
            raise PatchError(422, f"{path}: list element types are not identical")
        directive = _directive(element, path)
        if directive == "replace":
            replaced = True
            continue
        if key not in element:
            raise PatchError(422, f"{path}: an element does not contain declared merge key: {key}")
        if directive == "delete":
            deleted.add(_itself(element[key]))
        else:
            named.append(element)
    if not all(isinstance(element, dict) for element in original):
        raise PatchError(422, f"{path}: list element types are not identical")
    return [element for element in original if _itself(element.get(key)) not in deleted], named, replaced


def _ordered(items: list[Any], order: list[Any], before: list[Any], identity: Identity) -> list[Any]:
    """Returns the items in the given order; items without a place in it keep their position relative to `before`."""
    places = _places(order, identity)
    known = [(identity(item), item) for item in items]
    named = sorted((element for element in known if element[0] in places), key=lambda each: places[each[0]])
    others = [element for element in known if element[0] not in places]
    if not others:
        return [element for _, element in named]
    positions = _places(before, identity)
    result: list[Any] = []
    at = 0
    for key, element in named:
        place = positions.get(key, -1)
        while at < len(others) and positions.get(others[at][0], place) < place:
            result.append(others[at][1])
            at += 1
        result.append(element)
    return result + [other for _, other in others[at:]]


def _places(items: list[Any], identity: Identity) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for index, item in enumerate(items):
        places.setdefault(identity(item), index)
    return places


def _identity(member: Field | None) -> Identity:
    key = member.merge_key if member else ""
    if not key:
        return _itself
    return lambda element: _itself(element.get(key)) if isinstance(element, dict) else _itself(element)


def _itself(value: Any) -> Any:
    """Returns a scalar as a dictionary key: true is not 1. A value that cannot be a merge key equals only itself."""
    if type(value) is str:
        return value
    if isinstance(value, (dict, list)):
        return (object, id(value))
    return (bool, value) if isinstance(value, bool) else value

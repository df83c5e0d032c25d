"""What the name of a layer's entry means: where it goes, and whether it stands for something that is gone."""

import enum
from dataclasses import dataclass

from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits

_WHITEOUT, _META, _OPAQUE = b".wh.", b".wh..wh.", b".wh..wh..opq"


class Role(enum.Enum):
    PLAIN = "a file of this layer"
    WHITEOUT = "this name of the layers below is gone"
    OPAQUE = "all that the layers below have in this directory is gone"
    IGNORED = "the bookkeeping of a file system that nobody has any more"


@dataclass(frozen=True, slots=True)
class Place:
    """The directory's names from the root, and the name in it; empty for the root itself."""

    directory: tuple[bytes, ...]
    base: bytes
    role: Role = Role.PLAIN


def components(name: bytes, limits: Limits, field: str) -> tuple[bytes, ...]:
    """The names on a path from the layer's root. Raises BadImage for one that goes up."""
    parts = tuple(each for each in name.split(b"/") if each not in (b"", b"."))
    if b".." in parts:
        raise BadImage(field, "the path goes up (..)")
    if len(name) > limits.path or len(parts) > limits.depth or any(len(each) > limits.name for each in parts):
        raise OverLimit(
            field, f"a path of more than {limits.path} bytes, {limits.depth} names, or {limits.name} bytes in a name"
        )
    return parts


def place(name: bytes, limits: Limits, field: str) -> Place:
    """Where an entry goes and what it stands for. Raises BadImage."""
    parts = components(name, limits, field)
    if any(each.startswith(_META) and each != _OPAQUE for each in parts):
        return Place((), b"", Role.IGNORED)
    if any(each.startswith(_WHITEOUT) for each in parts[:-1]):
        raise BadImage(field, "a whiteout is used as a directory")
    if not parts:
        return Place((), b"")
    *directory, base = parts
    if base == _OPAQUE:
        return Place(tuple(directory), b"", Role.OPAQUE)
    if not base.startswith(_WHITEOUT):
        return Place(tuple(directory), base)
    hidden = base.removeprefix(_WHITEOUT)
    if hidden in (b"", b".", b".."):
        raise BadImage(field, "a whiteout of nothing")
    return Place(tuple(directory), hidden, Role.WHITEOUT)

"""Names of tar entries in a layer: paths, whiteouts and opaque directories (OCI image-spec, layer.md)."""

import enum
from dataclasses import dataclass

from podwire.runtime.images.errors import BadImage, OverLimit
from podwire.runtime.images.limits import Limits

_WHITEOUT, _META, _OPAQUE = b".wh.", b".wh..wh.", b".wh..wh..opq"


class Role(enum.Enum):
    PLAIN = "a file of this layer"
    WHITEOUT = "the name is removed from the layers below"
    OPAQUE = "the directory hides that of the layers below"
    IGNORED = "metadata of AUFS"


@dataclass(frozen=True, slots=True)
class Place:
    """The directory's names from the root, and the name in it; empty for the root itself."""

    directory: tuple[bytes, ...]
    base: bytes
    role: Role = Role.PLAIN


def components(name: bytes, limits: Limits, field: str) -> tuple[bytes, ...]:
    """Returns the components of a path from the layer's root. Raises BadImage for `..`."""
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise BadImage(field, "the path goes up (..)")
    if len(name) > limits.path or len(parts) > limits.depth or any(len(part) > limits.name for part in parts):
        raise OverLimit(
            field, f"a path of more than {limits.path} bytes, {limits.depth} names, or {limits.name} bytes in a name"
        )
    return parts


def place(name: bytes, limits: Limits, field: str) -> Place:
    """Returns the path and the role of an entry. Raises BadImage."""
    parts = components(name, limits, field)
    if any(part.startswith(_META) and part != _OPAQUE for part in parts):
        return Place((), b"", Role.IGNORED)
    if any(part.startswith(_WHITEOUT) for part in parts[:-1]):
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

"""Shape: the type of a value, from the built-in definitions (`schema/`) or from a CRD's structural schema (`crds/`).

One walk over a request body decodes it, reports unknown fields and gives it normal form. Strategic merge asks the same
shapes for merge keys. Schemas are compiled to shapes once, because every write walks them.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol


class TypeMismatch(Exception):
    """A value has the wrong JSON type; the message is upstream's sentence without the kind."""


@dataclass(slots=True)
class Report:
    """Fields that are errors only under `fieldValidation=Strict`, as paths such as spec.containers[0].x."""

    unknown: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Sentences about keys that are given more than once."""


@dataclass(frozen=True, slots=True)
class Field:
    """A member of an object: its shape and how strategic merge treats it."""

    shape: "Shape"
    merge_key: str = ""
    """Set on lists whose elements are merged by this key."""
    strategies: frozenset[str] = frozenset()
    """A subset of `merge`, `replace`, `retainKeys`; empty is replace for lists and merge for objects."""


class Shape(Protocol):
    """A type."""

    def decode(self, value: Any, path: str, report: Report) -> Any:
        """Returns the value in normal form: types checked, nulls and unknown fields left out (the latter reported),
        quantities canonical. The input is not changed. Raises TypeMismatch."""
        ...

    def field(self, name: str) -> Field | None:
        """Returns the member `name` of an object (any name of a map); None when there is none."""
        ...

    @property
    def element(self) -> "Shape | None":
        """The shape of a list's elements; None for everything else."""
        ...

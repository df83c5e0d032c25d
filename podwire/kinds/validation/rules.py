"""The rules of one kind, as the table of kinds holds them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kinds.validation.pod_values import Errors, Object
from podwire.protocols.k8sapi.status import FieldError, invalid

Create = Callable[[Object], list[FieldError]]
Update = Callable[[Object, Object], list[FieldError]]

IMMUTABLE = "field is immutable"


def nothing(_new: Object, _old: Object) -> list[FieldError]:
    """No rules but those of metadata."""
    return []


@dataclass(frozen=True, slots=True)
class Rules:
    """What is checked on creation, on update, and on update through a subresource."""

    create: Create
    update: Update
    subresources: Mapping[str, Update] = field(default_factory=dict)

    def of_update(self, subresource: str) -> Update:
        return self.subresources.get(subresource, nothing) if subresource else self.update


def unchanged(new: Any, old: Any, path: str, errors: Errors) -> None:
    """The field at `path` stays what it is; empty is the same as missing."""
    if new != old and (new or old):
        errors.append(invalid(path, new, IMMUTABLE))

"""Whether an object may be stored: the rules for metadata, then those of its kind, with upstream's paths and words."""

from typing import Any

from podwire.kinds.validation import meta
from podwire.kinds.validation.kinds import RULES
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import FieldError

__all__ = ["create", "update"]


def create(kind: Kind, obj: dict[str, Any]) -> list[FieldError]:
    """What is wrong with an object that was defaulted, named and prepared for creation; nothing is best."""
    errors: list[FieldError] = []
    meta.create(kind, obj.get("metadata") or {}, errors)
    if (rules := RULES.get((kind.group, kind.kind))) is not None:
        errors += rules.create(obj)
    return errors


def update(kind: Kind, new: dict[str, Any], old: dict[str, Any], subresource: str = "") -> list[FieldError]:
    """What is wrong with an object that is to replace `old`, whole or through a subresource."""
    errors: list[FieldError] = []
    meta.update(kind, new.get("metadata") or {}, old.get("metadata") or {}, errors)
    if (rules := RULES.get((kind.group, kind.kind))) is not None:
        errors += rules.of_update(subresource)(new, old)
    return errors

"""DeviceClass: devices that an administrator selects and configures."""

from podwire.kinds.builtin.resource.device_checks import (
    MOST_CONFIGS,
    MOST_SELECTORS,
    configuration,
    items,
    selector,
)
from podwire.kinds.builtin.resource.versions import conversions
from podwire.kinds.field_checks import Errors, Object
from podwire.kinds.podspec.resource_rules import is_extended
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import named_row
from podwire.protocols.k8sapi.status import FieldError, invalid


def validate_create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    spec = obj.get("spec") or {}
    items(spec.get("selectors") or (), MOST_SELECTORS, selector, "spec.selectors", errors)
    items(spec.get("config") or (), MOST_CONFIGS, configuration, "spec.config", errors)
    extended = spec.get("extendedResourceName")
    if extended is not None and not is_extended(extended):
        errors.append(invalid("spec.extendedResourceName", extended, "must be a valid extended resource name"))
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """Checks a changed spec; an unchanged one stays valid, even if its expressions would not be accepted today."""
    return [] if new.get("spec") == old.get("spec") else validate_create(new)


DEVICE_CLASS = Strategy(
    group="resource.k8s.io",
    kind="DeviceClass",
    conversions=conversions("DeviceClass"),
    parts={"spec": {}},
    counts_generation=True,
    validate_create=validate_create,
    validate_update=validate_update,
    returns_deleted=True,
    columns="Name|Age",
    row=named_row,
)

"""Namespaces: their own finalizers, and a phase that follows from whether they are being deleted."""

from podwire.kinds.validation.meta import qualified_finalizer
from podwire.kinds.validation.pod_values import Errors, Object, named
from podwire.kinds.validation.rules import Rules, nothing
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid


def create(obj: Object) -> list[FieldError]:
    errors: Errors = []
    _finalizers(obj, errors)
    return errors


def finalize(new: Object, _old: Object) -> list[FieldError]:
    errors: Errors = []
    _finalizers(new, errors)
    return errors


def update_status(new: Object, _old: Object) -> list[FieldError]:
    phase = (new.get("status") or {}).get("phase", "")
    if not (new.get("metadata") or {}).get("deletionTimestamp"):
        if phase != "Active":
            return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
    elif phase != "Terminating":
        return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]
    return []


def _finalizers(obj: Object, errors: Errors) -> None:
    for index, each in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
        path = f"spec.finalizers[{index}]"
        named(names.qualified_name, each, path, errors)
        qualified_finalizer(each, path, errors)


RULES = {("", "Namespace"): Rules(create, nothing, {"finalize": finalize, "status": update_status})}

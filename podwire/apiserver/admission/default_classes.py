"""DefaultStorageClass and DefaultIngressClass: an object that names no class gets the one that is marked as default."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.admission.informers import ObjectInformer
from podwire.kinds.stored import Object

STORAGE_MARKS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""The annotation by which a claim named its class before there was a field."""
INGRESS_MARKS = ("ingressclass.kubernetes.io/is-default-class",)
INGRESS_CLASS = "kubernetes.io/ingress.class"


@dataclass(frozen=True, slots=True)
class DefaultStorageClass(AdmissionPlugin):
    """Gives new claims a storage class; the empty name is a class: none."""

    classes: ObjectInformer

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "persistentvolumeclaims")})

    async def admit(self, operation: Operation) -> None:
        _set_default(operation.obj, "storageClassName", STORAGE_CLASS, await self.classes.all(), STORAGE_MARKS)


@dataclass(frozen=True, slots=True)
class DefaultIngressClass(AdmissionPlugin):
    """Gives new ingresses an ingress class."""

    classes: ObjectInformer

    verbs = frozenset({"CREATE"})
    resources = frozenset({("networking.k8s.io", "ingresses")})

    async def admit(self, operation: Operation) -> None:
        _set_default(operation.obj, "ingressClassName", INGRESS_CLASS, await self.classes.all(), INGRESS_MARKS)


def _set_default(obj: Object, field: str, annotation: str, classes: Iterable[Object], marks: Sequence[str]) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get(field) is not None or annotation in (obj["metadata"].get("annotations") or {}):
        return
    default = newest_default(classes, marks)
    if default is not None:
        spec[field] = default["metadata"]["name"]


def newest_default(classes: Iterable[Object], marks: Sequence[str]) -> Object | None:
    """Returns the class with a mark; of several the newest, and of these the first by name."""
    marked = [
        class_
        for class_ in classes
        if any((class_["metadata"].get("annotations") or {}).get(mark) == "true" for mark in marks)
    ]
    marked.sort(key=lambda class_: str(class_["metadata"]["name"]))
    marked.sort(key=lambda class_: str(class_["metadata"].get("creationTimestamp", "")), reverse=True)
    return marked[0] if marked else None

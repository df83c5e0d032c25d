"""The words of a request: which objects, how to patch, how to delete, and what a listing gives."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from podwire.protocols.k8sapi.client_side.calls import JSON
from podwire.protocols.k8sapi.watch import Object

_METADATA_ONLY = "application/json;as={};g=meta.k8s.io;v=v1"


class PatchType(enum.StrEnum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.StrEnum):
    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The scope of a list or watch: all namespaces or one, all objects or those that the selectors match."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    metadata_only: bool = False

    def query(self, **more: str) -> list[tuple[str, str]]:
        pairs = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector, **more}
        return [(name, value) for name, value in pairs.items() if value]

    def accept(self, as_: str) -> dict[str, str]:
        return {"accept": _METADATA_ONLY.format(as_) if self.metadata_only else JSON}


EVERYWHERE = Scope()


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects that were asked for, and the resourceVersion to watch from."""

    items: Sequence[Object]
    resource_version: str


def write_options(*, field_manager: str = "", force: bool = False, dry_run: bool = False) -> list[tuple[str, str]]:
    pairs = (("fieldManager", field_manager), ("force", "true" if force else ""), ("dryRun", "All" if dry_run else ""))
    return [(name, value) for name, value in pairs if value]


def delete_options(
    grace_seconds: int | None, propagation: Propagation | None, uid: str, resource_version: str
) -> Object:
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if propagation is not None:
        options["propagationPolicy"] = propagation.value
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if given := {name: value for name, value in preconditions.items() if value}:
        options["preconditions"] = given
    return options

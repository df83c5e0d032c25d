"""OwnerReferencesPermissionEnforcement (off by default): who may make the garbage collector delete or keep an object.

A user who changes the owners of an object must be allowed to delete it; one who blocks the deletion of an owner must be
allowed to set that owner's finalizers.
"""

from dataclasses import dataclass

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.identity.authorization import Attributes, Authorizer
from podwire.apiserver.registry import Registry
from podwire.kinds.stored import Object

PODS_STATUS = ("", "pods", "status")
"""Kubelets write it with the whole metadata of a pod, owners included."""


@dataclass(frozen=True, slots=True)
class OwnerReferencesPermissionEnforcement(AdmissionPlugin):
    """Checks writes that change owner references."""

    authorizer: Authorizer
    registry: Registry

    verbs = WRITES

    async def validate(self, operation: Operation) -> None:
        kind = operation.resource.kind
        if (kind.group, kind.resource, operation.subresource) == PODS_STATUS:
            return
        owners, before = owners_of(operation.obj), owners_of(operation.old or {})
        if owners == before:
            return
        if operation.verb == "UPDATE":
            deletion = Attributes(
                verb="delete",
                group=kind.group,
                version=kind.version,
                resource=kind.resource,
                subresource=operation.subresource,
                namespace=operation.namespace,
                name=operation.name,
            )
            decision = self.authorizer.check(operation.user, deletion)
            if not decision.allowed:
                raise operation.forbidden(
                    f"cannot set an ownerRef on a resource you can't delete: {decision.reason}, <nil>"
                )
        blocking = newly_blocking(owners, before)
        anything = Attributes(verb="update", group="*", version="*", resource="*", subresource="finalizers", name="*")
        if blocking and not self.authorizer.check(operation.user, anything).allowed:
            for owner in blocking:
                self._check_blocking(operation, owner)

    def _check_blocking(self, operation: Operation, owner: Object) -> None:
        api_version, name = owner.get("apiVersion", ""), owner.get("kind", "")
        resources = [
            resource
            for resource in self.registry.resources
            if (resource.kind.api_version, resource.kind.kind) == (api_version, name)
        ]
        if not resources:
            raise operation.forbidden(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for "
                f'APIVersion {api_version} Kind {name}: no matches for kind "{name}" in version "{api_version}"'
            )
        for resource in resources:
            finalizers = Attributes(
                verb="update",
                group=resource.group,
                version=resource.kind.version,
                resource=resource.name,
                subresource="finalizers",
                namespace=operation.namespace if resource.kind.namespaced else "",
                name=owner.get("name", ""),
            )
            decision = self.authorizer.check(operation.user, finalizers)
            if not decision.allowed:
                raise operation.forbidden(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers "
                    f"on: {decision.reason}, <nil>"
                )


def owners_of(obj: Object) -> list[Object]:
    owners: list[Object] = (obj.get("metadata") or {}).get("ownerReferences") or []
    return owners


def newly_blocking(owners: list[Object], before: list[Object]) -> list[Object]:
    """Returns the references that block the deletion of their owner and did not before."""
    blocked = {owner.get("uid") for owner in before if owner.get("blockOwnerDeletion")}
    return [owner for owner in owners if owner.get("blockOwnerDeletion") and owner.get("uid") not in blocked]

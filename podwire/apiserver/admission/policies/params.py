"""Parameters of a binding: objects of the policy's paramKind, by name or by labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.kinds.policies.policy import Binding, Policy
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object
from podwire.objects.selectors import from_object

Json = Mapping[str, Any]


class Misconfigured(Exception):
    """A policy or binding cannot be evaluated; the policy's failurePolicy decides what follows."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Reads parameters from the store."""

    store: Store
    registry: Registry

    def resource(self, policy: Policy) -> Resource | None:
        """Returns the resource of a policy's parameters; None for a policy without. Raises Misconfigured."""
        if policy.params is None:
            return None
        for resource in self.registry.resources:
            if (resource.kind.api_version, resource.kind.kind) == policy.params and "get" in resource.kind.verbs:
                return resource
        group, _, version = policy.params[0].rpartition("/")
        what = f"{group}/{version}, Kind={policy.params[1]}"
        raise Misconfigured(f"failed to find resource referenced by paramKind: '{what}'")

    async def find(self, resource: Resource | None, binding: Binding, namespace: str) -> list[Object | None]:
        """Returns one set of parameters per evaluation; None stands for no parameters.

        Raises Misconfigured.
        """
        ref = binding.params
        if resource is None or ref is None:
            return [None]
        where = _place(resource, ref, namespace)
        found: list[Object | None] = []
        if name := ref.get("name"):
            item = await self.store.get(resource.key(where, name))
            found = [resource.unpack(item)] if item else []
        else:
            selector = from_object(ref.get("selector") or {})
            items = [resource.unpack(item) for item in (await self.store.list(resource.scope(where))).items]
            found = [object_ for object_ in items if selector.matches(object_["metadata"].get("labels") or {})]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found


def _place(resource: Resource, ref: Json, namespace: str) -> str:
    """Returns the namespace of the parameters: the binding's, else the request's."""
    given: str = ref.get("namespace") or ""
    if not resource.kind.namespaced:
        if given:
            raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    if not given and not namespace:
        raise Misconfigured("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return given or namespace

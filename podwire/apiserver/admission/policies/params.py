"""The parameters of a binding: objects of the kind that its policy names, found by name or by labels."""

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
    """A policy or a binding that cannot be carried out; who is told depends on the policy's failurePolicy."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Reads parameters as they are now."""

    store: Store
    registry: Registry

    def resource(self, policy: Policy) -> Resource | None:
        """What the parameters of a policy are; None for a policy without. Raises Misconfigured."""
        if policy.params is None:
            return None
        for each in self.registry.resources:
            if (each.kind.api_version, each.kind.kind) == policy.params and "get" in each.kind.verbs:
                return each
        group, _, version = policy.params[0].rpartition("/")
        what = f"{group}/{version}, Kind={policy.params[1]}"
        raise Misconfigured(f"failed to find resource referenced by paramKind: '{what}'")

    async def find(self, resource: Resource | None, binding: Binding, namespace: str) -> list[Object | None]:
        """One set of parameters for each time that the policy is to be run: None is one without any.

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
            items = [resource.unpack(each) for each in (await self.store.list(resource.scope(where))).items]
            found = [each for each in items if selector.matches(each["metadata"].get("labels") or {})]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found


def _place(resource: Resource, ref: Json, namespace: str) -> str:
    """The namespace to look in: the one that the binding says, else the request's own."""
    given: str = ref.get("namespace") or ""
    if not resource.kind.namespaced:
        if given:
            raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    if not given and not namespace:
        raise Misconfigured("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return given or namespace

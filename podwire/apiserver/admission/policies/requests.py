"""A request that policies and webhooks are matched with; what several of them need is loaded once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.admission.policies.attributes import RequestAttributes
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.kinds.policies.matching import Constraints
from podwire.kinds.resource import PREFIX, Resource
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.kinds import Kind


class Versions:
    """The versions of each resource, as the registry has them."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self._registry = registry
        self._versions: tuple[int, Mapping[str, Sequence[Resource]]] = (-1, {})

    def others(self, resource: Resource, part: str) -> list[Resource]:
        """Returns the same resource in other versions."""
        if self._versions[0] != self._registry.version:
            found: dict[str, list[Resource]] = defaultdict(list)
            for candidate in self._registry.resources:
                found[candidate.prefix].append(candidate)
            self._versions = self._registry.version, found
        alike = self._versions[1].get(resource.prefix) or ()
        others = (other for other in alike if other.kind is not resource.kind)
        return [other for other in others if not part or other.kind.subresource(part) is not None]


class MatchedRequest:
    """One request, and which constraints match it."""

    def __init__(self, versions: Versions, operation: Operation) -> None:
        self._versions = versions
        self.attributes = RequestAttributes(operation)
        self.target = self.attributes.target
        self._namespace: Object | None = None
        self._namespace_loaded = False

    async def matching(self, constraints: Constraints) -> Resource | None:
        """Returns the resource in whose version the request is seen; None when it does not match."""
        kind = constraints.kind_for(self.target, self._others)
        if kind is None or not constraints.picks(*self.attributes.objects):
            return None
        selective = self.target.namespace and not constraints.namespaces.everything
        if selective and not constraints.namespaces.matches(await self._labels()):
            return None
        return self.attributes.operation.resource if kind is self.target.kind else self._others[kind]

    @cached_property
    def _others(self) -> Mapping[Kind, Resource]:
        own = self.attributes.operation.resource
        return {other.kind: other for other in self._versions.others(own, self.target.subresource)}

    async def _labels(self) -> Mapping[str, str]:
        """Returns the labels of the request's namespace; for a namespace that is being written, the new ones."""
        target = self.target
        if target.is_namespace and target.verb in ("CREATE", "UPDATE") and not target.subresource:
            namespace: Object | None = self.attributes.operation.obj
        else:
            namespace = await self.own_namespace()
        found: Mapping[str, str] = (namespace or {"metadata": {}})["metadata"].get("labels") or {}
        return found

    async def own_namespace(self) -> Object | None:
        if not self._namespace_loaded and self.target.namespace:
            item = await self._versions.store.get(f"{PREFIX}namespaces/{self.target.namespace}")
            self._namespace = unpack(item) if item else None
        self._namespace_loaded = True
        return self._namespace

"""A request that policies and webhooks are matched with; what several of them need is loaded once."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import ParamSpec, TypeVar

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.admission.policies.attributes import RequestAttributes
from podwire.apiserver.identity.authorization import Attributes, Authorizer
from podwire.apiserver.identity.users import User
from podwire.apiserver.ports import Store
from podwire.apiserver.read.selection import exact_fields
from podwire.apiserver.registry import Registry
from podwire.apiserver.request import offload
from podwire.kinds.policies.matching import Constraints
from podwire.kinds.resource import PREFIX, Resource
from podwire.kinds.stored import Object, unpack
from podwire.protocols.cel.functions.authorization import PathCheck, ResourceCheck, Verdict, asking
from podwire.protocols.k8sapi.kinds import Kind


class Versions:
    """The versions of each resource, as the registry has them; and what else requests are matched with."""

    def __init__(self, store: Store, registry: Registry, authorizer: Authorizer) -> None:
        self.store = store
        self.ask = partial(_ask, authorizer)
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


def _ask(authorizer: Authorizer, check: PathCheck | ResourceCheck, verb: str) -> Verdict:
    """Decides about a check of an expression. Neither roles nor the rules for nodes look at label selectors."""
    principal = check.principal
    user = User(principal.name, principal.uid, principal.groups, principal.extra)
    if isinstance(check, PathCheck):
        asked = Attributes(verb=verb, path=check.path)
    else:
        asked = Attributes(
            verb=verb,
            group=check.group,
            version="*",
            resource=check.resource,
            subresource=check.subresource,
            namespace=check.namespace,
            name=check.name,
            fields=exact_fields(check.field_selector),
        )
    decision = authorizer.check(user, asked)
    return Verdict(decision.allowed, decision.reason)


P = ParamSpec("P")
Result = TypeVar("Result")


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

    async def evaluate(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Returns the result of a function that runs expressions, which may ask the server's authorizer."""
        with asking(self._versions.ask):
            return await offload.run(function, *args, **kwargs)

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

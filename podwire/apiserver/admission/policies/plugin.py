"""The policies with their bindings, and the admission plugin that runs them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.admission.policies.attributes import RequestAttributes
from podwire.apiserver.admission.policies.decision import Decision
from podwire.apiserver.admission.policies.params import Misconfigured, Parameters
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.apiserver.request import offload
from podwire.kinds.policies.evaluation import Outcome, evaluate
from podwire.kinds.policies.matching import Constraints
from podwire.kinds.policies.policy import Binding, Policy
from podwire.kinds.resource import PREFIX, Resource
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.kinds import Kind

GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class BoundPolicy:
    """A policy with its bindings."""

    policy: Policy
    bindings: tuple[Binding, ...]


def bound(policies: Iterable[Policy], bindings: Iterable[Binding]) -> tuple[BoundPolicy, ...]:
    """Returns the policies that have bindings, by name, which is the order in which they refuse."""
    by_policy = defaultdict(list)
    for binding in sorted(bindings, key=lambda binding: binding.name):
        by_policy[binding.policy].append(binding)
    named = sorted(policies, key=lambda policy: policy.name)
    return tuple(BoundPolicy(policy, tuple(by_policy[policy.name])) for policy in named if policy.name in by_policy)


class Policies(AdmissionPlugin):
    """Runs the policies that match a request."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._parameters = Parameters(store, registry)
        self.bound: tuple[BoundPolicy, ...] = ()
        """The active policies."""
        self._matching: dict[str, tuple[BoundPolicy, ...]] = {}
        self._versions: tuple[int, Mapping[str, Sequence[Resource]]] = (-1, {})

    async def validate(self, operation: Operation) -> None:
        """Raises the refusal of the first policy that refuses. Policies and bindings themselves are exempt, so that a
        policy cannot lock out its own removal."""
        if not self.bound or operation.resource.group == GROUP:
            return
        matching = self._matching.get(operation.resource.name)
        if matching is None:
            matching = self._matching[operation.resource.name] = _for(operation.resource.name, self.bound)
        if not matching:
            return
        evaluation = _Evaluation(self, RequestAttributes(operation))
        for bound_policy in matching:
            await evaluation.run(bound_policy)
        evaluation.decision.conclude(operation)

    def replace(self, bound_: tuple[BoundPolicy, ...]) -> None:
        self.bound, self._matching = bound_, {}

    @property
    def parameters(self) -> Parameters:
        return self._parameters

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

    async def namespace(self, name: str) -> Object | None:
        item = await self._store.get(f"{PREFIX}namespaces/{name}")
        return unpack(item) if item else None


def _for(resource: str, among: Iterable[BoundPolicy]) -> tuple[BoundPolicy, ...]:
    """Returns the policies that may match a resource, which has the same name in every version."""
    return tuple(bound for bound in among if bound.policy.constraints.names(resource))


class _Evaluation:
    """Evaluates all policies for one request; what several of them need is loaded once."""

    def __init__(self, policies: Policies, attributes: RequestAttributes) -> None:
        self._policies = policies
        self._attributes = attributes
        self._target = attributes.target
        self._namespace: Object | None = None
        self._namespace_loaded = False
        self.decision = Decision()

    async def run(self, bound_: BoundPolicy) -> None:
        operation, policy = self._attributes.operation, bound_.policy
        matching = await self._matching(policy.constraints)
        if matching is None:
            return
        try:
            params = self._policies.parameters.resource(policy)
        except Misconfigured as error:
            self.decision.misconfigured(operation, policy, None, str(error))
            return
        for binding in bound_.bindings:
            if await self._matching(binding.constraints) is None:
                continue
            try:
                given = await self._policies.parameters.find(params, binding, self._target.namespace)
            except (Misconfigured, ValueError) as error:
                self.decision.misconfigured(operation, policy, binding, str(error))
                continue
            namespace = (
                await self._own_namespace() if policy.needs_namespace and not self._target.is_namespace else None
            )
            for parameter in given:
                outcome = await offload.run(self._evaluate, policy, matching, namespace, parameter)
                self.decision.take(operation, policy, binding, outcome)

    def _evaluate(self, policy: Policy, seen_as: Resource, namespace: Object | None, params: Object | None) -> Outcome:
        return evaluate(policy, self._attributes.known(seen_as, namespace, params))

    async def _matching(self, constraints: Constraints) -> Resource | None:
        """Returns the resource in whose version the policy sees the request; None when it does not match."""
        kind = constraints.kind_for(self._target, self._others)
        if kind is None or not constraints.picks(*self._attributes.objects):
            return None
        selective = self._target.namespace and not constraints.namespaces.everything
        if selective and not constraints.namespaces.matches(await self._labels()):
            return None
        return self._attributes.operation.resource if kind is self._target.kind else self._others[kind]

    @cached_property
    def _others(self) -> Mapping[Kind, Resource]:
        own = self._attributes.operation.resource
        return {other.kind: other for other in self._policies.others(own, self._target.subresource)}

    async def _labels(self) -> Mapping[str, str]:
        """Returns the labels of the request's namespace; for a namespace that is being written, the new ones."""
        target = self._target
        if target.is_namespace and target.verb in ("CREATE", "UPDATE") and not target.subresource:
            namespace: Object | None = self._attributes.operation.obj
        else:
            namespace = await self._own_namespace()
        found: Mapping[str, str] = (namespace or {"metadata": {}})["metadata"].get("labels") or {}
        return found

    async def _own_namespace(self) -> Object | None:
        if not self._namespace_loaded and self._target.namespace:
            self._namespace = await self._policies.namespace(self._target.namespace)
        self._namespace_loaded = True
        return self._namespace

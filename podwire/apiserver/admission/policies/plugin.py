"""The policies with their bindings, and the admission plugin that runs them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.admission.policies.decision import Decision
from podwire.apiserver.admission.policies.params import Misconfigured, Parameters
from podwire.apiserver.admission.policies.requests import MatchedRequest, Versions
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import Registry
from podwire.kinds.policies.evaluation import Outcome, evaluate
from podwire.kinds.policies.policy import Binding, Policy
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object

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

    def __init__(self, store: Store, registry: Registry, versions: Versions) -> None:
        self.versions = versions
        self.parameters = Parameters(store, registry)
        self.bound: tuple[BoundPolicy, ...] = ()
        """The active policies."""
        self._matching: dict[str, tuple[BoundPolicy, ...]] = {}

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
        evaluation = _Evaluation(self, MatchedRequest(self.versions, operation))
        for bound_policy in matching:
            await evaluation.run(bound_policy)
        evaluation.decision.conclude(operation)

    def replace(self, bound_: tuple[BoundPolicy, ...]) -> None:
        self.bound, self._matching = bound_, {}


def _for(resource: str, among: Iterable[BoundPolicy]) -> tuple[BoundPolicy, ...]:
    """Returns the policies that may match a resource, which has the same name in every version."""
    return tuple(bound for bound in among if bound.policy.constraints.names(resource))


class _Evaluation:
    """Evaluates all policies for one request."""

    def __init__(self, policies: Policies, request: MatchedRequest) -> None:
        self._policies = policies
        self._request = request
        self.decision = Decision()

    async def run(self, bound_: BoundPolicy) -> None:
        request, policy = self._request, bound_.policy
        operation, target = request.attributes.operation, request.target
        matching = await request.matching(policy.constraints)
        if matching is None:
            return
        try:
            params = self._policies.parameters.resource(policy)
        except Misconfigured as error:
            self.decision.misconfigured(operation, policy, None, str(error))
            return
        for binding in bound_.bindings:
            if await request.matching(binding.constraints) is None:
                continue
            try:
                given = await self._policies.parameters.find(params, binding, target.namespace)
            except (Misconfigured, ValueError) as error:
                self.decision.misconfigured(operation, policy, binding, str(error))
                continue
            namespace = await request.own_namespace() if policy.needs_namespace and not target.is_namespace else None
            for parameter in given:
                outcome = await request.evaluate(self._evaluate, policy, matching, namespace, parameter)
                self.decision.take(operation, policy, binding, outcome)

    def _evaluate(self, policy: Policy, seen_as: Resource, namespace: Object | None, params: Object | None) -> Outcome:
        return evaluate(policy, self._request.attributes.known(seen_as, namespace, params))

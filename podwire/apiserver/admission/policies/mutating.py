"""MutatingAdmissionPolicy: the plugin that runs mutations, and the informer of the policies and their bindings."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.admission.mutation import Reinvocation, take_over
from podwire.apiserver.admission.policies.params import Misconfigured, Parameters
from podwire.apiserver.admission.policies.requests import MatchedRequest, Versions
from podwire.apiserver.ports import Store
from podwire.apiserver.read.informer import follow
from podwire.apiserver.registry import Registry
from podwire.apiserver.request import offload
from podwire.kinds.policies.evaluation import SPENT, Failure, Spent, meets_conditions
from podwire.kinds.policies.mutation import MutatingPolicy, MutationFailed, mutated, mutating_policy_of
from podwire.kinds.policies.policy import Binding, binding_of
from podwire.kinds.resource import PREFIX, Resource
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import ApiError, Reason, named, qualified
from podwire.protocols.storage import Change, Item

_log = logging.getLogger("podwire.apiserver.policies")

GROUP = "admissionregistration.k8s.io"


@dataclass(frozen=True, slots=True)
class BoundMutation:
    """A mutating policy with its bindings."""

    policy: MutatingPolicy
    bindings: tuple[Binding, ...]


class MutatingPolicies(AdmissionPlugin):
    """Runs the mutations of the policies that match a request, by the names of policies and bindings."""

    verbs = frozenset({"CREATE", "UPDATE"})

    def __init__(self, store: Store, registry: Registry, versions: Versions) -> None:
        self._versions = versions
        self._parameters = Parameters(store, registry)
        self.bound: tuple[BoundMutation, ...] = ()
        """The active policies."""

    async def admit(self, operation: Operation) -> None:
        if not self.bound or operation.internal or operation.resource.group == GROUP:
            return
        reinvocation: Reinvocation | None = None
        for bound in self.bound:
            if not bound.policy.constraints.names(operation.resource.name):
                continue
            if reinvocation is None:
                reinvocation = Reinvocation.of(operation, "MutatingAdmissionPolicy")
            await self._run(operation, bound, reinvocation)
        if reinvocation is not None:
            reinvocation.ended(operation)

    async def _run(self, operation: Operation, bound: BoundMutation, reinvocation: Reinvocation) -> None:
        policy, request = bound.policy, MatchedRequest(self._versions, operation)
        seen_as = await request.matching(policy.constraints)
        if seen_as is None:
            return
        try:
            params = self._parameters.resource(policy)
        except Misconfigured as error:
            self._refuse(operation, policy, None, f"failed to configure policy: {error}")
            return
        for binding in bound.bindings:
            if await request.matching(binding.constraints) is None:
                continue
            try:
                given = await self._parameters.find(params, binding, request.target.namespace)
            except (Misconfigured, ValueError) as error:
                self._refuse(operation, policy, binding, f"failed to configure binding: {error}")
                continue
            needed = policy.needs_namespace and not request.target.is_namespace
            namespace = await request.own_namespace() if needed else None
            for parameter in given:
                place = (parameter or {}).get("metadata") or {}
                key = f"{policy.name}/{binding.name}/{place.get('namespace')}/{place.get('name')}"
                if reinvocation.skips(operation, key):
                    continue
                try:
                    changed = await request.evaluate(self._mutate, policy, request, seen_as, namespace, parameter)
                except MutationFailed as failure:
                    self._refuse(operation, policy, binding, str(failure))
                    changed = False
                reinvocation.called(operation, key, changed=changed, reinvoked=policy.reinvoked)

    @staticmethod
    def _mutate(
        policy: MutatingPolicy, request: MatchedRequest, seen_as: Resource, namespace: Object | None, params: Any
    ) -> bool:
        """Runs all mutations of a policy; returns whether the object has changed. Raises MutationFailed."""
        operation, attributes, changed = request.attributes.operation, request.attributes, False
        try:
            if policy.conditions:
                met = meets_conditions(policy, attributes.known(seen_as, namespace, params))
                if isinstance(met, Failure):
                    raise MutationFailed(met.message)
                if not met:
                    return False
            for mutation in policy.mutations:
                known = attributes.known(seen_as, namespace, params)
                changed |= take_over(operation, seen_as, mutated(policy, mutation, known, seen_as.typed))
        except Spent:
            raise MutationFailed(SPENT) from None
        return changed

    @staticmethod
    def _refuse(operation: Operation, policy: MutatingPolicy, binding: Binding | None, why: str) -> None:
        """Denies the request, unless the policy's failures are ignored."""
        if not policy.fails:
            _log.info("mutating policy was ignored", extra={"policy": policy.name, "error": why})
            return
        by = f"policy '{policy.name}' with binding '{binding.name}'" if binding else f'policy "{policy.name}"'
        message = f"{by} denied request: {why}"
        resource = operation.resource
        raise ApiError(
            Reason.INVALID,
            f'{qualified(resource.name, resource.group)} "{operation.name}" is forbidden: {message}',
            details={**named(resource.name, operation.name, resource.group), "causes": [{"message": message}]},
        )


class MutatingPolicyInformer:
    """Follows mutating policies and their bindings."""

    def __init__(self, store: Store, active: MutatingPolicies) -> None:
        self._store = store
        self.active = active
        self._policies = _Compiled(f"{PREFIX}mutatingadmissionpolicies/", mutating_policy_of, self._activate)
        self._bindings = _Compiled(f"{PREFIX}mutatingadmissionpolicybindings/", binding_of, self._activate)

    async def load(self) -> None:
        """Activates the stored policies; called once before the server answers."""
        for kind in (self._policies, self._bindings):
            await kind.on_list(list((await self._store.list(kind.prefix)).items))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for kind in (self._policies, self._bindings):
                parts.create_task(follow(self._store, kind.prefix, kind.on_list, kind.on_change))

    def _activate(self) -> None:
        self.active.bound = bound(self._policies.known.values(), self._bindings.known.values())


def bound(policies: Iterable[MutatingPolicy], bindings: Iterable[Binding]) -> tuple[BoundMutation, ...]:
    """Returns the policies that have bindings, by name, which is the order in which they run."""
    by_policy = defaultdict(list)
    for binding in sorted(bindings, key=lambda binding: binding.name):
        by_policy[binding.policy].append(binding)
    ordered = sorted(policies, key=lambda policy: policy.name)
    return tuple(BoundMutation(policy, tuple(by_policy[policy.name])) for policy in ordered if policy.name in by_policy)


_T = TypeVar("_T")


class _Compiled(Generic[_T]):
    """Stored objects of one kind, compiled."""

    def __init__(self, prefix: str, compile_: Callable[[Object], _T], changed: Callable[[], None]) -> None:
        self.prefix = prefix
        self.known: dict[str, _T] = {}
        self._compile = compile_
        self._changed = changed

    async def on_list(self, items: list[Item]) -> None:
        found = {item.key: await offload.for_size(len(item.value), partial(self._compiled, item)) for item in items}
        self.known = {key: compiled for key, compiled in found.items() if compiled is not None}
        self._changed()

    async def on_change(self, change: Change) -> None:
        item, compiled = change.item, None
        if item is not None:
            compiled = await offload.for_size(len(item.value), partial(self._compiled, item))
        self.known.pop(change.key, None)
        if compiled is not None:
            self.known[change.key] = compiled
        self._changed()

    def _compiled(self, item: Item) -> _T | None:
        try:
            return self._compile(unpack(item))
        except (LookupError, TypeError, ValueError):  # stored before it was validated: the others stay active
            _log.exception("cannot compile mutating policy object", extra={"key": item.key})
            return None

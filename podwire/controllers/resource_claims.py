"""Claims for devices: generated from templates for pods, reserved, and released when unused."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import ClassVar

from podwire.controllers import claim_rules
from podwire.controllers.event_recorder import EventRecorder
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CLAIMS, PODS, TEMPLATES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.work_queue import WorkQueue
from podwire.interfaces import Clock
from podwire.objects import claims, pods
from podwire.objects.claims import NotGenerated, PodClaim
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client, PatchType
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

Ref = tuple[str, str]
"""Namespace and name."""


class DeviceClaims:
    """Reconciles a pod with claims whenever it changes, and a claim whenever it or one of its pods changes.

    Pods without claims are recognized once, from the feed or by reading them.
    """

    resources: ClassVar = frozenset(map(resource_of, (PODS, CLAIMS, TEMPLATES)))

    def __init__(self, api: Client, graph: Graph, clock: Clock) -> None:
        self._api = api
        self._graph = graph
        self._recorder = EventRecorder(api, clock, "resource-claim-controller")
        self._pods: WorkQueue[str] = WorkQueue("claims", self._reconcile_pod)
        self._claims: WorkQueue[Ref] = WorkQueue("claims", self._reconcile_claim)
        self._uses: dict[str, frozenset[Ref]] = {}
        self._users: defaultdict[Ref, set[str]] = defaultdict(set)
        self._waiting: defaultdict[Ref, set[str]] = defaultdict(set)
        """Waiting pods by the missing template."""
        self._generated: dict[str, dict[str, str]] = {}
        """Names of generated claims by pod, before the feed reports them."""
        self._finished: set[str] = set()
        self._done: set[str] = set()
        """Bound pods whose claims are all reserved."""
        self._without_claims: set[str] = set()
        self._reported: dict[str, str] = {}

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None:
            return
        ref = (latest.namespace, latest.name)
        if latest.resource == resource_of(PODS):
            self._saw_pod(latest, there=now is not None)
        elif latest.resource == resource_of(CLAIMS):
            self._saw_claim(latest, there=now is not None)
        elif latest.resource == resource_of(TEMPLATES) and now is not None:
            self._enqueue(self._waiting.pop(ref, ()))

    def _saw_pod(self, pod: PartialObject, *, there: bool) -> None:
        if there:
            known = pod.uid in self._without_claims or (pod.on_node and pod.uid in self._done)
            if self._graph.complete and pod.claims is not False and not known:
                self._pods.add(pod.uid)
            return
        for ref in self._uses.get(pod.uid, ()):
            self._claims.add(ref)
        self._forget(pod.uid)

    def _saw_claim(self, claim: PartialObject, *, there: bool) -> None:
        """Most changes come from the scheduler and drivers, and need no work here."""
        ref = (claim.namespace, claim.name)
        if self._graph.complete and self._calls_for_work(claim):
            self._claims.add(ref)
        holders = claim.holders if there and claim.holders is not None else frozenset[str]()
        without = self._users.get(ref, set()) - holders
        self._done -= without
        self._enqueue(without)

    def _calls_for_work(self, claim: PartialObject) -> bool:
        """Returns whether the claim is being deleted, or a consumer may be gone."""
        if claim.deleting or claim.holders is None or any(owner.uid in self._finished for owner in claim.owners):
            return True
        return any(holder in self._finished or self._graph.node(holder) is None for holder in claim.holders)

    def _enqueue(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._pods.add(uid)

    def on_synced(self) -> None:
        for node in self._graph.nodes():
            self.on_change(node, node)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._pods.run())
            parts.create_task(self._claims.run())

    async def _reconcile_pod(self, uid: str) -> None:
        """Reconciles a pod.

        1. Generate missing claims.  2. Reserve them, if the pod is bound.  Or release everything, when the pod is over.
        """
        seen = self._graph.node(uid)
        found = None if seen is None else await self._find(PODS, seen.name, seen.namespace)
        if found is None or found["metadata"]["uid"] != uid:
            return
        pod = pods.read(found)
        entries = claims.of_pod(pod)
        if not entries:
            self._without_claims.add(uid)
            return
        self._remember(pod, entries)
        if claim_rules.is_over(pod):
            self._finished.add(uid)
            for ref in self._uses[uid]:
                self._claims.add(ref)
        elif not pod.deleting:
            await self._generate(found, pod, entries)
            if pod.spec.node_name and uid not in self._done:
                await self._reserve(pod)

    def _remember(self, pod: Pod, entries: Sequence[PodClaim]) -> None:
        names = {name for entry in entries if (name := _name(pod, entry))} | {
            *self._generated.get(pod.uid, {}).values()
        }
        refs = frozenset((pod.namespace, name) for name in names)
        for ref in self._uses.get(pod.uid, frozenset()) - refs:
            self._users[ref].discard(pod.uid)
        for ref in refs:
            self._users[ref].add(pod.uid)
        self._uses[pod.uid] = refs

    def _forget(self, uid: str) -> None:
        for ref in self._uses.pop(uid, ()):
            self._users[ref].discard(uid)
            if not self._users[ref]:
                del self._users[ref]
        for table in (self._finished, self._done, self._without_claims):
            table.discard(uid)
        self._generated.pop(uid, None)
        self._reported.pop(uid, None)
        for template in [key for key, waiting in self._waiting.items() if uid in waiting]:
            self._wait_no_more(uid, template)

    def _wait_no_more(self, uid: str, template: Ref) -> None:
        self._waiting[template].discard(uid)
        if not self._waiting[template]:
            del self._waiting[template]

    async def _generate(self, found: Object, pod: Pod, entries: Sequence[PodClaim]) -> None:
        """Generates missing claims from templates and records them in the pod's status."""
        new: dict[str, str] = {}
        for entry in entries:
            if entry.resource_claim_template_name is None or await self._is_there(pod, entry):
                continue
            try:
                name = await self._orphan(pod, entry) or await self._make(pod, entry)
            except ApiError as error:
                await self._report_failure(found, f"PodResourceClaim {entry.name}: {error.message}")
                raise
            if name:
                new[entry.name] = self._generated.setdefault(pod.uid, {})[entry.name] = name
            else:
                template = entry.resource_claim_template_name
                missing = f'resourceclaimtemplates.resource.k8s.io "{template}" not found'
                await self._report_failure(
                    found, f'PodResourceClaim {entry.name}: resource claim template "{template}": {missing}'
                )
        if new:
            self._remember(pod, entries)
            await self._record(pod, new)

    async def _is_there(self, pod: Pod, entry: PodClaim) -> bool:
        """Returns whether the pod's status names its own claim, or says that none is needed."""
        try:
            name = claims.name_of(pod, entry)
        except NotGenerated:
            return False
        if name is None or name in self._owned(pod.uid):
            return True
        found = await self._find(CLAIMS, name, pod.namespace)
        return found is not None and claims.read(found).owner[1] == pod.uid

    def _owned(self, uid: str) -> list[str]:
        return [
            dependent.name for dependent in self._graph.dependents(uid) if dependent.resource == resource_of(CLAIMS)
        ]

    async def _orphan(self, pod: Pod, entry: PodClaim) -> str:
        """Returns a claim that was generated for the pod but not recorded in its status."""
        for name in {*self._owned(pod.uid), self._generated.get(pod.uid, {}).get(entry.name, "")}:
            found = await self._find(CLAIMS, name, pod.namespace) if name else None
            if found is not None and (found["metadata"].get("annotations") or {}).get(claims.POD_CLAIM) == entry.name:
                return name
        return ""

    async def _make(self, pod: Pod, entry: PodClaim) -> str:
        """Generates a claim and returns its name; empty when the template is missing, whose creation triggers a
        retry."""
        template = entry.resource_claim_template_name or ""
        self._waiting[pod.namespace, template].add(pod.uid)
        found = await self._find(TEMPLATES, template, pod.namespace)
        if found is None:
            return ""
        self._wait_no_more(pod.uid, (pod.namespace, template))
        made = await self._api.create(claim_rules.generated(pod, entry, found))
        name: str = made["metadata"]["name"]
        log.info("claim was generated", extra={"pod": pod.ref, "claim": name})
        return name

    async def _record(self, pod: Pod, new: dict[str, str]) -> None:
        statuses = [{"name": entry, "resourceClaimName": name} for entry, name in sorted(new.items())]
        patch = {"metadata": {"uid": pod.uid}, "status": {"resourceClaimStatuses": statuses}}
        await self._api.patch(PODS, pod.name, patch, pod.namespace, type_=PatchType.STRATEGIC, subresource="status")

    async def _report_failure(self, pod: Object, why: str) -> None:
        """Records an event once per reason."""
        uid = pod["metadata"]["uid"]
        if self._reported.get(uid) != why:
            self._reported[uid] = why
            await self._recorder.record(pod, WARNING, "FailedResourceClaimCreation", why)

    async def _reserve(self, pod: Pod) -> None:
        for namespace, name in self._uses[pod.uid]:
            found = await self._find(CLAIMS, name, namespace)
            if found is not None and (changed := claim_rules.reserved(found, pod)) is not None:
                await self._api.replace(changed, subresource="status")
        self._done.add(pod.uid)

    async def _reconcile_claim(self, ref: Ref) -> None:
        """Reconciles a claim.

        1. Remove consumers that are gone, and the allocation with the last.  2. Remove the finalizer.  3. Delete the
        claim, if it was generated for a pod that is over.
        """
        namespace, name = ref
        found = await self._find(CLAIMS, name, namespace)
        if found is None:
            return
        changed = claim_rules.released(found, await self._gone(found))
        if changed is not None:
            log.info("claim was released", extra={"claim": f"{namespace}/{name}"})
            found = await self._api.replace(changed, subresource="status")
        bare = claim_rules.unprotected(found, was_released=changed is not None)
        if bare is not None:
            found = await self._api.replace(bare)
        claim = claims.read(found)
        if claim_rules.superfluous(claim, self._finished):
            await self._delete(claim)

    async def _delete(self, claim: claims.ResourceClaim) -> None:
        try:
            await self._api.delete(CLAIMS, claim.name, claim.namespace, uid=claim.uid)
        except ApiError as error:
            if error.code != 404:
                raise

    async def _gone(self, claim: Object) -> set[str]:
        """Returns the consumers that no longer use the claim. A pod that is unknown here may be new, so the server is
        asked."""
        held = claims.read(claim)
        gone = set()
        for holder in held.status.reserved_for:
            if not holder.is_pod:
                continue
            if holder.uid in self._finished:
                gone.add(holder.uid)
            elif self._graph.node(holder.uid) is None:
                found = await self._find(PODS, holder.name, held.namespace)
                if found is None or found["metadata"]["uid"] != holder.uid:
                    gone.add(holder.uid)
        return gone

    async def _find(self, kind: Kind, name: str, namespace: str) -> Object | None:
        try:
            return await self._api.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None


def _name(pod: Pod, entry: PodClaim) -> str | None:
    try:
        return claims.name_of(pod, entry)
    except NotGenerated:
        return None

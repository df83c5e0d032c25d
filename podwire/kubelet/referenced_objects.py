"""ConfigMaps and Secrets that pods of this node refer to: each is watched by name, once, however many pods use it.

By name, because the node authorizer allows a node no others, and a whole namespace would be more than its pods need.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.objects.volumes import Volume
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Object, Synced, Updated

log = logging.getLogger(__name__)

SYNC_SECONDS = 10.0
"""How long `get` waits for the first answer of a watch."""

LINGER_SECONDS = 60.0
"""How long a watch outlives its last pod: the next pod of the namespace needs kube-root-ca.crt again."""


class NotSynced(Exception):
    """It is not known yet whether the object exists."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`kind` is ConfigMap or Secret."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class _Watched:
    """The object, None if it does not exist; valid once `known` is set."""

    users: set[str] = field(default_factory=set)
    waiting: int = 0
    known: asyncio.Event = field(default_factory=asyncio.Event)
    object: Object | None = None
    refusal: ApiError | None = None
    task: asyncio.Task[None] | None = None
    closing: asyncio.TimerHandle | None = None


class ReferencedObjects:
    def __init__(
        self,
        api: Client,
        changed: Callable[[frozenset[str]], None],
        *,
        linger: float = LINGER_SECONDS,
        sync: float = SYNC_SECONDS,
    ) -> None:
        """`changed` is called with the uids of the pods that use an object that was added, changed or deleted."""
        self._api = api
        self._changed = changed
        self._linger = linger
        self._sync = sync
        self._watched: dict[Reference, _Watched] = {}
        self._of_pod: dict[str, frozenset[Reference]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def hold(self, pod: Pod) -> None:
        """Watch all objects that this pod refers to, until it is released."""
        references, before = references_of(pod), self._of_pod.get(pod.uid, frozenset())
        self._of_pod[pod.uid] = references
        for reference in references - before:
            self._watch(reference).users.add(pod.uid)
        for reference in before - references:
            self._remove_user(reference, pod.uid)

    def release(self, uid: str) -> None:
        for reference in self._of_pod.pop(uid, frozenset()):
            self._remove_user(reference, uid)

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None if it does not exist. Raises NotSynced."""
        reference = Reference(kind, namespace, name)
        watched = self._watch(reference)
        watched.waiting += 1
        try:
            async with asyncio.timeout(self._sync):
                await watched.known.wait()
        except TimeoutError as error:
            raise NotSynced(f"failed to sync {kind.lower()} cache: timed out waiting for the condition") from error
        finally:
            watched.waiting -= 1
            self._close_unless_needed(reference, watched)
        if watched.refusal is not None:
            raise NotSynced(f"failed to sync {kind.lower()} cache: {watched.refusal.message}") from watched.refusal
        return watched.object

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = group
                for reference, watched in list(self._watched.items()):
                    self._start(reference, watched)
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    self._tasks = None  # a task group that is shutting down refuses new tasks
        finally:
            for watched in self._watched.values():
                if watched.closing is not None:
                    watched.closing.cancel()

    def _watch(self, reference: Reference) -> _Watched:
        watched = self._watched.get(reference)
        if watched is None:
            watched = self._watched[reference] = _Watched()
            self._start(reference, watched)
        elif watched.refusal is not None:
            watched.refusal = None
            watched.known.clear()
            self._start(reference, watched)
        if watched.closing is not None:
            watched.closing.cancel()
            watched.closing = None
        return watched

    def _start(self, reference: Reference, watched: _Watched) -> None:
        if self._tasks is not None:
            name = f"watch {reference.kind} {reference.namespace}/{reference.name}"
            watched.task = self._tasks.create_task(self._follow(reference, watched), name=name)

    async def _follow(self, reference: Reference, watched: _Watched) -> None:
        scope = Scope(namespace=reference.namespace, field_selector=f"metadata.name={reference.name}")
        try:
            async with self._api.informer(_KINDS[reference.kind], scope) as informer:
                async for change in informer:
                    self._apply(watched, change)
        except ApiError as error:  # not retried by the informer; the next `get` starts the watch again
            log.warning("cannot watch referenced object", extra={"object": str(reference), "error": error.message})
            watched.refusal = error
            watched.known.set()

    def _apply(self, watched: _Watched, change: Change) -> None:
        match change:
            case Synced():
                watched.known.set()
                return
            case Added(object_) | Updated(object_, _):
                watched.object = object_
            case Deleted(_):
                watched.object = None
        if watched.known.is_set() and watched.users:
            self._changed(frozenset(watched.users))

    def _remove_user(self, reference: Reference, uid: str) -> None:
        watched = self._watched[reference]
        watched.users.discard(uid)
        self._close_unless_needed(reference, watched)

    def _close_unless_needed(self, reference: Reference, watched: _Watched) -> None:
        if not watched.users and not watched.waiting and watched.closing is None:
            watched.closing = asyncio.get_running_loop().call_later(self._linger, self._close, reference)

    def _close(self, reference: Reference) -> None:
        watched = self._watched.pop(reference)
        if watched.task is not None:
            watched.task.cancel()


def _kind(name: str) -> Kind:
    kind = BUILTIN.of_kind("v1", name)
    if kind is None:
        raise LookupError(name)
    return kind


_KINDS = {name: _kind(name) for name in ("ConfigMap", "Secret")}


def references_of(pod: Pod) -> frozenset[Reference]:
    """Every ConfigMap and Secret that a pod refers to. Pure."""
    return frozenset(Reference(kind, pod.namespace, name) for kind, name in _named(pod) if name)


def _named(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        yield from _named_by_volume(volume)
    for container in pod.spec.every_container:
        yield from _named_by_container(container)
    for secret in pod.spec.image_pull_secrets:
        yield "Secret", secret.name


def _named_by_volume(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.config_map is not None:
        yield "ConfigMap", volume.config_map.name
    if volume.secret is not None:
        yield "Secret", volume.secret.secret_name
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.config_map is not None:
            yield "ConfigMap", source.config_map.name
        if source.secret is not None:
            yield "Secret", source.secret.name


def _named_by_container(container: Container) -> Iterator[tuple[str, str]]:
    for variable in container.env:
        source = variable.value_from
        if source is not None and source.config_map_key_ref is not None:
            yield "ConfigMap", source.config_map_key_ref.name
        if source is not None and source.secret_key_ref is not None:
            yield "Secret", source.secret_key_ref.name
    for whole in container.env_from:
        if whole.config_map_ref is not None:
            yield "ConfigMap", whole.config_map_ref.name
        if whole.secret_ref is not None:
            yield "Secret", whole.secret_ref.name

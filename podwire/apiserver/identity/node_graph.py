"""The relations of API objects to nodes: through pods, their claims, and the volumes of these.

    node <- pod <- secret, configmap, serviceaccount, persistentvolumeclaim, resourceclaim
                   persistentvolumeclaim <- persistentvolume <- secret
    node <- volumeattachment, resourceslice

Kept by an informer on the store. A kubelet learns of a pod by a watch of the same store, and this informer runs in the
process that serves the watch, so the graph knows the pod when the kubelet asks for what it needs.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from podwire.apiserver.identity.pod_references import (
    Reference,
    claim_of_volume,
    fingerprint,
    read_pod,
    secrets_of_volume,
)
from podwire.apiserver.ports import Store
from podwire.apiserver.read.informer import follow
from podwire.kinds.resource import PREFIX
from podwire.protocols.storage import Change, Item

_log = logging.getLogger("podwire.apiserver.identity.node_graph")

PODS, VOLUMES = f"{PREFIX}pods/", f"{PREFIX}persistentvolumes/"
ATTACHMENTS, SLICES = f"{PREFIX}volumeattachments/", f"{PREFIX}resourceslices/"


class _NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _OnNode(msgspec.Struct, frozen=True):
    spec: _NodeSpec = _NodeSpec()


class _Pod(NamedTuple):
    node: str
    references: frozenset[Reference]
    mark: int


_read_node = msgspec.json.Decoder(_OnNode).decode
_read_volume = msgspec.json.Decoder(dict[str, Any]).decode


class NodeGraph:
    """Relations of objects to nodes, by what pods refer to. `related` does no I/O."""

    def __init__(self) -> None:
        self._pods: dict[str, _Pod] = {}
        """Bound pods by storage key."""
        self._nodes: dict[Reference, Counter[str]] = {}
        """How many pods of each node refer to an object."""
        self._volumes: dict[str, tuple[tuple[str, str], frozenset[tuple[str, str]]]] = {}
        """Claim and secrets of each bound volume, by storage key."""
        self._volumes_of_secret: dict[tuple[str, str], set[str]] = {}
        self._owners: dict[str, str] = {}
        """The node of each volume attachment and resource slice, by storage key."""

    def related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Returns whether a node may read an object because of its pods."""
        if resource == "pods":
            pod = self._pods.get(f"{PODS}{namespace}/{name}")
            return pod is not None and pod.node == node
        if resource == "persistentvolumes":
            return self._uses_volume(node, f"{VOLUMES}{name}")
        if resource in ("volumeattachments", "resourceslices"):
            return self._owners.get(f"{PREFIX}{resource}/{name}") == node
        if self._refers(node, (resource, namespace, name)):
            return True
        volumes = self._volumes_of_secret.get((namespace, name), ()) if resource == "secrets" else ()
        return any(self._uses_volume(node, volume) for volume in tuple(volumes))  # which may change meanwhile

    def _uses_volume(self, node: str, key: str) -> bool:
        claim = self._volumes.get(key, (None, None))[0]
        return claim is not None and self._refers(node, ("persistentvolumeclaims", *claim))

    def _refers(self, node: str, reference: Reference) -> bool:
        """Returns whether a pod of the node refers to an object."""
        pods = self._nodes.get(reference)
        return pods is not None and node in pods

    def put(self, key: str, value: bytes) -> None:
        if key.startswith(PODS):
            self._put_pod(key, value)
        elif key.startswith(VOLUMES):
            self.drop(key)
            volume = _read_volume(value)
            if (claim := claim_of_volume(volume)) is not None:
                secrets = frozenset(secrets_of_volume(volume))
                self._volumes[key] = (claim, secrets)
                for secret in secrets:
                    self._volumes_of_secret.setdefault(secret, set()).add(key)
        else:
            self._owners[key] = _read_node(value).spec.node_name

    def _put_pod(self, key: str, value: bytes) -> None:
        known, mark = self._pods.get(key), fingerprint(value)
        if known is not None and known.mark == mark:
            return
        self.drop(key)
        pod = read_pod(value)
        if pod.node:
            references = frozenset(pod.references())
            self._pods[key] = _Pod(pod.node, references, mark)
            for reference in references:
                self._nodes.setdefault(reference, Counter())[pod.node] += 1

    def drop(self, key: str) -> None:
        self._owners.pop(key, None)
        if (pod := self._pods.pop(key, None)) is not None:
            for reference in pod.references:
                counts = self._nodes[reference]
                counts[pod.node] -= 1
                if not counts[pod.node]:
                    del counts[pod.node]
                if not counts:
                    del self._nodes[reference]
        if (volume := self._volumes.pop(key, None)) is not None:
            for secret in volume[1]:
                keys = self._volumes_of_secret[secret]
                keys.discard(key)
                if not keys:
                    del self._volumes_of_secret[secret]

    def keep(self, prefix: str, keys: Iterable[str]) -> None:
        """Removes everything under a prefix that does not exist any more."""
        present = {*keys}
        for key in [*self._pods, *self._volumes, *self._owners]:
            if key.startswith(prefix) and key not in present:
                self.drop(key)


class NodeGraphInformer:
    """Keeps the graph up to date."""

    def __init__(self, store: Store, graph: NodeGraph) -> None:
        self._store = store
        self._graph = graph
        self._prefixes = (PODS, VOLUMES, ATTACHMENTS, SLICES)

    async def load(self) -> None:
        """Loads everything once, before the server answers."""
        for prefix in self._prefixes:
            await self._on_list(prefix, list((await self._store.list(prefix)).items))

    async def run(self) -> None:
        """Follows changes until cancelled."""
        async with asyncio.TaskGroup() as parts:
            for prefix in self._prefixes:
                parts.create_task(follow(self._store, prefix, partial(self._on_list, prefix), self._on_change))

    async def _on_list(self, prefix: str, items: list[Item]) -> None:
        self._graph.keep(prefix, (item.key for item in items))
        for item in items:
            self._put(item)

    async def _on_change(self, change: Change) -> None:
        if change.item is None:
            self._graph.drop(change.key)
        else:
            self._put(change.item)

    def _put(self, item: Item) -> None:
        """An object that cannot be read is related to no node, and does not stop the server."""
        try:
            self._graph.put(item.key, item.value)
        except msgspec.MsgspecError as error:
            self._graph.drop(item.key)
            _log.warning("cannot read a stored object that nodes need", extra={"key": item.key, "error": str(error)})


Related = Callable[[str, str, str, str], bool]
"""Node, resource, namespace and name."""

"""get and list of NodeMetrics and PodMetrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from podwire.apiserver.engine import Engine
from podwire.apiserver.ports import Kubelet
from podwire.apiserver.read import selection
from podwire.apiserver.request.call import Call
from podwire.apiserver.request.negotiation import Shown
from podwire.apiserver.request.response import answer
from podwire.apiserver.request.verbs import Verb
from podwire.apiserver.resource_metrics.kinds import GROUP, NODES, PODS
from podwire.apiserver.resource_metrics.samples import NODE, Key, Usage
from podwire.apiserver.subresources.kubelet_proxy import kubelet_address, kubelet_port
from podwire.kinds import stored
from podwire.kinds.stored import Object
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.server_side import Answer
from podwire.protocols.k8sapi.status import ApiError, Reason, not_found
from podwire.protocols.storage import Item


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Pod).decode


async def nodes(engine: Engine, call: Call) -> Answer:
    resource = engine.registry.builtin("", "nodes")
    if call.verb == "get":
        item = await engine.store.get(resource.key("", call.name))
        items = [item] if item is not None else []
    else:
        picked = selection.of(call.request, resource)
        page = await engine.store.list(resource.prefix)
        engine.usage.keep(resource.unpack(item)["metadata"]["name"] for item in page.items)
        items = [item for item in page.items if picked.picks(item)]
    objects = [resource.unpack(item) for item in items]
    await _read(engine, objects)
    metrics = []
    for node in objects:
        name = node["metadata"]["name"]
        if (used := engine.usage.usage(name, NODE)) is not None:
            metadata = _metadata(name, "", node["metadata"].get("labels"), used)
            metrics.append({"metadata": metadata, **_when(used), "usage": _quantities(used)})
    return _answer(engine, call, metrics)


async def pods(engine: Engine, call: Call) -> Answer:
    resource = engine.registry.builtin("", "pods")
    if call.verb == "get":
        item = await engine.store.get(resource.key(call.namespace, call.name))
        items: list[Item] = [item] if item is not None else []
    else:
        picked = selection.of(call.request, resource)
        page = await engine.store.list(resource.scope(call.namespace))
        items = [item for item in page.items if picked.picks(item)]
    asked = [pod for item in items if (pod := _decode(item.value)).spec.node_name]
    kind = engine.registry.builtin("", "nodes")
    names = sorted({pod.spec.node_name for pod in asked})
    found = [await engine.find(kind, "", name) for name in names]
    await _read(engine, [node for node in found if node is not None])
    metrics = []
    containers = {name: _by_pod(engine.usage.containers(name)) for name in names}
    for pod in asked:
        named = (pod.metadata.namespace, pod.metadata.name)
        keys = containers[pod.spec.node_name].get(named, ())
        usages = {key[2]: engine.usage.usage(pod.spec.node_name, key) for key in keys}
        known = {name: used for name, used in usages.items() if used is not None}
        if not known or len(known) < len(usages):
            continue  # no sum is better than a part of it
        latest = max(known.values())
        metadata = _metadata(pod.metadata.name, pod.metadata.namespace, pod.metadata.labels, latest)
        listed = [{"name": name, "usage": _quantities(used)} for name, used in sorted(known.items())]
        metrics.append({"metadata": metadata, **_when(latest), "containers": listed})
    return _answer(engine, call, metrics)


def _by_pod(keys: Any) -> dict[tuple[str, str], list[Key]]:
    pods_: dict[tuple[str, str], list[Key]] = {}
    for key in keys:
        if key != NODE:
            pods_.setdefault(key[:2], []).append(key)
    return pods_


async def _read(engine: Engine, objects: Sequence[Object]) -> None:
    if objects and not engine.usage.reaches_kubelets:
        raise ApiError(
            Reason.SERVICE_UNAVAILABLE, "metrics not available: this API server has no connection to kubelets"
        )
    kubelets = []
    for node in objects:
        try:
            kubelets.append(
                Kubelet(node=node["metadata"]["name"], address=kubelet_address(node), port=kubelet_port(node))
            )
        except ApiError:
            continue  # a node without an address was never reached by a kubelet
    await engine.usage.read(kubelets)


def _metadata(name: str, namespace: str, labels: Mapping[str, str] | None, used: Usage) -> Object:
    metadata: Object = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["creationTimestamp"] = rfc3339(used.time)
    if labels:
        metadata["labels"] = dict(labels)
    return metadata


def _when(used: Usage) -> Object:
    return {"timestamp": rfc3339(used.time), "window": go_duration(used.window)}


def go_duration(seconds: float) -> str:
    """Returns seconds as Go prints them: 900ms, 15.1s, 1m30s."""
    milliseconds = round(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{f'{minutes}m' if minutes else ''}{rest / 1000:g}s"


def _quantities(used: Usage) -> Object:
    return {"cpu": f"{used.nanocores}n", "memory": f"{used.memory // 1024}Ki"}


def _answer(engine: Engine, call: Call, metrics: list[Object]) -> Answer:
    kind = call.resource.kind
    typed = [{"kind": kind.kind, "apiVersion": kind.api_version, **obj} for obj in metrics]
    if call.verb == "get" and not typed:
        raise not_found(kind.resource, call.name, group=GROUP)
    if call.form.shown is Shown.TABLE:
        rows = [
            {"cells": call.resource.cells(obj, engine.clock.wall()), "object": _partial(obj, call.form.version)}
            for obj in typed
        ]
        table = {"kind": "Table", "apiVersion": f"meta.k8s.io/{call.form.version}", "metadata": {}}
        return answer(
            call.request, stored.encode({**table, "columnDefinitions": call.resource.columns(), "rows": rows})
        )
    if call.verb == "get":
        return answer(call.request, stored.encode(typed[0]))
    listed = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}, "items": typed}
    return answer(call.request, stored.encode(listed))


def _partial(obj: Object, version: str) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}


METRICS: Mapping[tuple[str, str, str, str], Verb] = {
    (GROUP, kind.resource, "", verb): function
    for kind, function in ((NODES, nodes), (PODS, pods))
    for verb in kind.verbs
}
"""Handlers by group, resource, subresource and verb."""

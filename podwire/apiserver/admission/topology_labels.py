"""PodTopologyLabels: a pod gets the zone and region labels of its node, when it is bound or created with a node.

So a program learns its zone from its own labels (downward API), without the right to read nodes.
"""

from dataclasses import dataclass

import msgspec

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX

LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class _Meta(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_read = msgspec.json.Decoder(_Node).decode


@dataclass(frozen=True, slots=True)
class PodTopologyLabels(AdmissionPlugin):
    """Adds the labels to bindings, whose labels the pod gets, and to pods. A node that does not exist has none."""

    store: Store

    verbs = frozenset({"CREATE"})
    resources = frozenset({("", "pods")})
    admits_parts = True

    async def admit(self, operation: Operation) -> None:
        if operation.verb != "CREATE" or not operation.is_for("", "pods"):
            return
        match operation.subresource:
            case "binding":
                node = operation.obj["target"]["name"]
            case "":
                node = operation.obj["spec"].get("nodeName")
            case _:
                return
        item = await self.store.get(f"{PREFIX}minions/{node}") if node else None
        labels = _read(item.value).metadata.labels or {} if item is not None else {}
        if copied := {key: labels[key] for key in LABELS if key in labels}:
            metadata = operation.obj["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **copied}

"""Settings of hollow nodes, and what each node has. Pure."""

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from podwire.kubelet.node.conditions import Readiness
from podwire.kubelet.node.node_object import NodeSnapshot
from podwire.kubelet.node.settings import NodeLimits, NodeSettings
from podwire.linux.machine import Facts, FreeResources
from podwire.objects.nodes import Taint
from podwire.protocols.k8sapi.watch import Object

INSTANCE = "hollow.podwire.dev/instance"
"""A label of every hollow node: the prefix of its name."""
ZONE = "topology.kubernetes.io/zone"
RUNTIME = "hollow"

NODE_ADDRESSES = ipaddress.IPv4Network("100.64.0.0/10")
POD_ADDRESSES = ipaddress.IPv4Network("10.128.0.0/9")
PODS_OF_A_NODE = 256
"""Addresses that the pods of one node have."""
MOST_NODES = POD_ADDRESSES.num_addresses // PODS_OF_A_NODE
MOST_PODS = PODS_OF_A_NODE - 2

_GIGABYTE = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class HollowSettings:
    nodes: int
    first: int = 0
    """The number of the first node: several processes may have a part of the nodes each."""
    prefix: str = "hollow-"
    cpus: int = 32
    memory: int = 256 * _GIGABYTE
    disk: int = 1000 * _GIGABYTE
    max_pods: int = 110
    zones: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    """By resource of a device plugin: the number of devices of each node."""
    dra_driver: str = "hollow.podwire.dev"
    dra_devices: int = 0
    """Devices in the ResourceSlice of each node; 0 for no slice."""
    keep: bool = False
    """The Nodes stay in the API when this process ends."""
    events: bool = True
    requests: int = 32
    """Requests in flight at most."""
    limits: NodeLimits = field(default_factory=NodeLimits)

    @property
    def instance(self) -> str:
        """The value of the label of all nodes with this prefix."""
        return self.prefix.strip("-.") or "hollow"

    def name(self, number: int) -> str:
        return f"{self.prefix}{number}"

    def node(self, number: int) -> NodeSettings:
        labels = {INSTANCE: self.instance, ZONE: f"zone-{number % self.zones}", **self.labels}
        return NodeSettings(
            name=self.name(number),
            addresses=(str(NODE_ADDRESSES[number + 1]),),
            labels=labels,
            taints=self.taints,
            max_pods=self.max_pods,
            port=0,
        )

    def snapshot(self, number: int, machine: Facts) -> NodeSnapshot:
        """Returns the state of a node; kernel and system are those of this machine."""
        identity = hashlib.blake2b(self.name(number).encode(), digest_size=16).hexdigest()
        facts = machine._replace(
            cpus=self.cpus, memory=self.memory, swap=0, hugepages=(), machine_id=identity, system_uuid=identity
        )
        left = FreeResources(
            memory=self.memory, disk=self.disk, disk_size=self.disk, inodes=10**8, inodes_size=10**8,
            pids=10**6, pids_size=10**6,
        )  # fmt: skip
        return NodeSnapshot(
            facts=facts,
            left=left,
            addresses=(str(NODE_ADDRESSES[number + 1]),),
            runtime=Readiness(True),
            runtime_version=f"{RUNTIME}://1",
            devices={name: (count, count) for name, count in self.devices.items()},
        )

    def resource_slice(self, number: int, node_uid: str) -> Object:
        """Returns the ResourceSlice of a node, which is deleted with it."""
        name = self.name(number)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid, "controller": True}
        devices = [
            {"name": f"device-{device}", "attributes": {"index": {"int": device}, "kind": {"string": RUNTIME}}}
            for device in range(self.dra_devices)
        ]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "name": f"{name}-{self.dra_driver}",
                "labels": {INSTANCE: self.instance},
                "ownerReferences": [owner],
            },
            "spec": {
                "driver": self.dra_driver,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }

    def part(self, first: int, nodes: int) -> "HollowSettings":
        return replace(self, first=first, nodes=nodes)


def pod_address(number: int, pod: int) -> str:
    """Returns the address of a pod by the number of its node and its own number there."""
    return str(POD_ADDRESSES[number * PODS_OF_A_NODE + 1 + pod])

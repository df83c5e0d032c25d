"""Views that look beyond the records: the node as a map, the way of a packet, resources; and the actions of the page.

They ask the kernel of this machine and the API server when they are asked, and keep nothing.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from podwire.cluster.up import state
from podwire.cluster.up.layout import Layout
from podwire.inspect.pod_namespaces import RuntimeDown
from podwire.inspect.policy_explain import read_model
from podwire.inspect.service_explain import Asked, CannotExplain, explain_service
from podwire.kubelet.pods.worker import RETRY
from podwire.linux.errors import LinuxError
from podwire.nriplugins.network.policy import Model
from podwire.nriplugins.network.policy.explain import Unknown
from podwire.nriplugins.network.policy.policies import Broken
from podwire.nriplugins.network.policy.values import PROTOCOLS, Pod
from podwire.objects.times import rfc3339_micro
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.trace.plain_text import plain
from podwire.web import packet_path, resources
from podwire.web.access import Refused
from podwire.web.node_map import node_map
from podwire.web.packet_path import Way
from podwire.web.stored_traces import StoredTraces

_PODS = BUILTIN["v1", "Pod"]
SERVICE = "service:"
NRI_STARTS = 30
"""Starts whose calls of NRI plugins are looked at, the newest."""
_UNREADABLE = (LinuxError, RuntimeDown, CannotExplain, Unknown, Broken, BadKubeconfig, OSError)


class CannotShow(Exception):
    """Says why something cannot be shown here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostViews:
    client: Client
    traces: StoredTraces
    layout: Layout | None = None
    """The cluster on this machine; None for one that is seen from outside only."""
    cluster: str = ""
    """How the cluster is called at the top of the page."""
    allow_actions: bool = False
    unseen: tuple[str, ...] = ()
    """Facts about this cluster that cannot be seen, in sentences."""

    def about(self) -> Mapping[str, Any]:
        return {
            "cluster": plain(self.cluster),
            "local": self.layout is not None,
            "actions": self.allow_actions,
            "unseen": self.unseen,
        }

    async def node_map(self, node: str) -> Mapping[str, Any]:
        """Raises CannotShow."""
        layout = self._local(node)
        model = await read_model(self.client)
        pods = [pod for pod in model.pods.values() if pod.node == node]
        try:
            return await asyncio.to_thread(node_map, layout, node, pods)
        except _UNREADABLE as error:
            raise CannotShow(str(error)) from error

    async def path(self, source: str, to: str, port: str, protocol: str) -> Mapping[str, Any]:
        """Follows a packet from a pod to a pod, an address, or `service:NAMESPACE/NAME`. Raises CannotShow."""
        layout = self._local()
        if protocol not in PROTOCOLS:
            raise CannotShow(f"protocol must be one of {', '.join(PROTOCOLS)}")
        model = await read_model(self.client)
        sender = _pod(model, source)
        try:
            if to.startswith(SERVICE):
                return await self._service_path(layout, model, sender, to.removeprefix(SERVICE), port)
            if not port.isdecimal() or not 1 <= int(port) <= 65535:
                raise CannotShow("port must be a number from 1 to 65535")
            target = _target(model, to)
            return await asyncio.to_thread(packet_path.pod_path, layout, model, sender, target, int(port), protocol)
        except _UNREADABLE as error:
            raise CannotShow(str(error)) from error

    async def _service_path(
        self, layout: Layout, model: Model, sender: Pod, service: str, port: str
    ) -> Mapping[str, Any]:
        """The rules of the service proxy choose an endpoint; the way to each endpoint follows them."""
        asked = Asked(service=service, port=port, source=str(sender), probe=False)
        explained = await explain_service(layout, layout.kubeconfig, asked)
        address = ip_address(explained.address)
        way = Way()
        source = next((ip for ip in sender.ips if ip.version == address.version), None)
        if source is not None:
            await asyncio.to_thread(packet_path.leave, way, layout, sender, source, address)
        steps = [step for step in explained.steps if step.where != "podwire-policy"]
        for step in steps:
            ends = step is steps[-1] and not explained.endpoints
            way.add(step.where, step.what, step.verdict, passes=not ends)
        branches = []
        for endpoint in explained.endpoints:
            host, _, number = endpoint.rpartition(":")
            branches.append(
                await asyncio.to_thread(
                    packet_path.endpoint_path,
                    layout,
                    model,
                    sender,
                    ip_address(host.strip("[]")),
                    int(number),
                    explained.protocol,
                )
            )
        return {
            "from": plain(str(sender)),
            "to": plain(f"service {explained.service}"),
            "connection": plain(f"{source} → {explained.address} {explained.protocol} {explained.port}"),
            "hops": way.hops,
            "endpoints": branches,
            "reachable": explained.reachable,
        }

    async def resources(self) -> Mapping[str, Any]:
        """Raises CannotShow, ApiError, ClientError."""
        await self.traces.update()
        newest = sorted(self.traces.starts.values(), key=lambda start: start.first)[-NRI_STARTS:]
        built = [await self.traces.trace(start.pod) for start in newest]
        pools = []
        if self.layout is not None and (known := state.load(self.layout.record)) is not None:
            pools = [await asyncio.to_thread(resources.pools, self.layout, node) for node in known.nodes]
        return {
            "pools": pools,
            "claims": await resources.claims(self.client),
            "slices": await resources.slices(self.client),
            "devices": await resources.device_resources(self.client),
            "plugins": resources.nri_plugins(found[0] for found in built if found is not None),
        }

    async def act(self, name: str, pod: str) -> Mapping[str, Any]:
        """Raises Refused, ApiError, ClientError."""
        if not self.allow_actions:
            raise Refused(403, "this page is read-only: start it with --allow-actions")
        namespace, _, bare = pod.rpartition("/")
        if name != "retry" or not namespace or not bare:
            raise Refused(404, "the only action is retry, of a pod NAMESPACE/NAME")
        patch = {"metadata": {"annotations": {RETRY: rfc3339_micro(time.time())}}}
        await self.client.patch(_PODS, bare, patch, namespace)
        return {"done": f"the kubelet retries {plain(pod)} now"}

    def _local(self, node: str = "") -> Layout:
        if self.layout is None:
            raise CannotShow("the kernel of a node can be read only for a cluster of `podwire up` on this machine")
        if node and node not in self.layout.nodes():
            raise CannotShow(f"no node {plain(node)} of this cluster is on this machine")
        return self.layout


def _pod(model: Model, name: str) -> Pod:
    namespace, _, bare = name.rpartition("/")
    pod = model.find(namespace or "default", bare)
    if pod is None or not pod.ips:
        raise CannotShow(f"pod {plain(name)} does not exist, or has no address yet")
    return pod


def _target(model: Model, name: str) -> Any:
    try:
        return ip_address(name)
    except ValueError:
        return _pod(model, name)

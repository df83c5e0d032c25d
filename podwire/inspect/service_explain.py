"""Explains the way of a packet to a Service: the rules in the kernel of a node, the policies, and a probe.

Nothing is computed that the kernel can be asked: the chain, the list and the endpoints are elements of the table
`podwire-proxy` on the node of the client, or on the one whose node port is asked. The probe is a packet from the
client's network namespace; the connection tracking of the node shows to which endpoint it went.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from podwire.cluster.up.layout import FIRST, Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.inspect.pod_namespaces import RuntimeDown, pod_namespaces
from podwire.inspect.policy_explain import read_model
from podwire.inspect.service_rules import Destination, Step, endpoint_text, follow
from podwire.inspect.service_trace import POLICY, draw
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import IP
from podwire.nriplugins.network.policy import Model, explain
from podwire.nriplugins.network.policy.explain import Unknown
from podwire.nriplugins.network.policy.policies import EGRESS, INGRESS
from podwire.nriplugins.network.policy.values import PROTOCOLS, Pod
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.watch import Object
from podwire.proxy.kernel import Kernel
from podwire.transports import credentials, http_client

USER_AGENT = "podwire-service"
PROBE_SECONDS = 2.0


class CannotExplain(Exception):
    """The Service, its port or the client cannot be looked at; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The connection to explain."""

    service: str
    """[NAMESPACE/]NAME."""
    port: str = ""
    """A number or a name; empty: the first."""
    source: str = ""
    """[NAMESPACE/]NAME of the pod that connects; empty: nobody does, and the rules of a node are followed."""
    address: str = ""
    """One of the Service's addresses; empty: the first cluster address, or of a node port the node's first."""
    probe: bool = True
    """Whether a packet is sent; without one, the rules and the policies decide."""
    node_port: str = ""
    """The node to whose node port the connection is made; empty: it is made to an address of the Service."""


@dataclass(slots=True, kw_only=True)
class ExplainedService:
    service: str
    address: str
    port: int
    protocol: str
    source: str
    node: str
    """The node that has the rules."""
    steps: list[Step] = field(default_factory=list)
    endpoints: list[str] = field(default_factory=list)
    probe: str = ""
    """How the test packet fared; empty without a client."""
    probed_endpoint: str = ""
    """The endpoint to which the kernel sent it."""
    reachable: bool = False

    def __str__(self) -> str:
        """Text for people."""
        source = f"from {self.source} by the rules of {self.node}" if self.source else f"on {self.node}"
        lines = [f"{self.service}: {self.address} {self.protocol} {self.port}, {source}"]
        lines += [f"  {number} {step.where}: {step.what}: {step.verdict}" for number, step in enumerate(self.steps, 1)]
        if self.probe:
            to = f", sent to {self.probed_endpoint}" if self.probed_endpoint else ""
            lines.append(f"  probe: {self.probe}{to}")
        return "\n".join([*lines, f"verdict: {'reachable' if self.reachable else 'not reachable'}"])


async def explain_service(layout: Layout, kubeconfig: Path, asked: Asked) -> ExplainedService:
    """Raises CannotExplain, BadKubeconfig, ApiError, ClientError, LinuxError."""
    kind = BUILTIN.of_kind("v1", "Service")
    assert kind is not None  # noqa: S101 - a built-in kind
    namespace, _, bare = asked.service.rpartition("/")
    async with http_client.connect(credentials.load(kubeconfig), user_agent=USER_AGENT) as http:
        client = Client(http)
        service = await client.get(kind, bare, namespace or "default")
        model = await read_model(client)
    pod = _pod(model, asked.source)
    to = destination(service, asked, model.node_addresses(asked.node_port) if asked.node_port else ())
    return _Explanation(layout, model, service, to, pod, asked).run()


def _pod(model: Model, source: str) -> Pod | None:
    if not source:
        return None
    namespace, _, name = source.rpartition("/")
    pod = model.find(namespace or "default", name)
    if pod is None or not pod.ips:
        raise CannotExplain(f"--from {source}: pod not found, or without an address yet")
    return pod


def destination(service: Object, asked: Asked, node_addresses: Iterable[IP]) -> Destination:
    """Returns the address and port of a connection; `node_addresses` are those of the asked node. Pure.

    Raises CannotExplain.
    """
    port, name = _port(service, asked.port), service["metadata"]["name"]
    protocol = port.get("protocol", "TCP")
    if asked.node_port:
        number = port.get("nodePort")
        if not number:
            raise CannotExplain(f"port {port['port']} of service {name} has no node port")
        address = _one_of(map(str, sorted(node_addresses, key=_family)), asked.address, f"node {asked.node_port}")
        return Destination(address, protocol, number, is_node_port=True)
    spec = service["spec"]
    cluster_ips = spec.get("clusterIPs") or [spec.get("clusterIP") or "None"]
    if cluster_ips[0] == "None":
        raise CannotExplain(f"service {name} has no cluster address: clients connect to its pods")
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    addresses = [*cluster_ips, *(spec.get("externalIPs") or ()), *(row["ip"] for row in ingress if row.get("ip"))]
    return Destination(_one_of(addresses, asked.address, f"service {name}"), protocol, port["port"])


def _family(address: IP) -> tuple[int, bytes]:
    return address.version, address.packed


def _one_of(addresses: Iterable[str], asked: str, owner: str) -> IP:
    known = [ipaddress.ip_address(address) for address in addresses]
    if not known:
        raise CannotExplain(f"{owner} has no address")
    try:
        address = ipaddress.ip_address(asked) if asked else known[0]
    except ValueError:
        raise CannotExplain(f"--address {asked}: must be an IP address") from None
    if address not in known:
        raise CannotExplain(f"--address {asked}: {owner} has only {', '.join(map(str, known))}")
    return address


def _port(service: Object, asked: str) -> Object:
    ports = service["spec"].get("ports") or []
    for port in ports:
        if asked in ("", str(port["port"]), port.get("name")):
            chosen: Object = port
            return chosen
    raise CannotExplain(f'service {service["metadata"]["name"]} has no port "{asked}"')


class _Explanation:
    def __init__(
        self, layout: Layout, model: Model, service: Object, to: Destination, pod: Pod | None, asked: Asked
    ) -> None:
        metadata = service["metadata"]
        self._layout, self._model, self._to, self._pod = layout, model, to, pod
        self._pod_node = (pod.node if pod else "") or FIRST
        self._result = ExplainedService(
            service=f"{metadata['namespace']}/{metadata['name']}",
            address=str(to.address),
            port=to.port,
            protocol=to.protocol,
            source=str(pod) if pod else "",
            node=asked.node_port or self._pod_node,
        )
        self._is_probed = asked.probe
        own = NodeNamespaces(layout, self._result.node)
        self._netns = own.net if own.exists() else None

    def run(self) -> ExplainedService:
        result, pod, version = self._result, self._pod, self._to.address.version
        client = next((ip for ip in pod.ips if ip.version == version), None) if pod else None
        if pod is not None and client is None:
            raise CannotExplain(f"--from {pod}: has no IPv{version} address to reach {self._to.address} from")
        is_inside = pod is not None and self._pod_node == result.node
        with contextlib.closing(Kernel(self._netns)) as kernel:
            way = follow(kernel, self._to, client, is_inside=is_inside)
        result.steps += way.steps
        result.endpoints = [endpoint_text(*endpoint) for endpoint in way.endpoints]
        if pod is None:
            result.reachable = bool(way.endpoints)
            return result
        judged = [self._judge(pod, *endpoint, is_masqueraded=way.is_masqueraded) for endpoint in way.endpoints]
        result.reachable = any(judged)
        if self._is_probed and result.protocol in ("TCP", "UDP"):
            self._probe(pod)
        packet = f"{result.protocol} {endpoint_text(self._to.address, result.port)}"
        draw(
            self._layout.trace_socket,
            result.node,
            pod.uid,
            packet,
            result.steps,
            probe=result.probe,
            endpoint=result.probed_endpoint,
        )
        return result

    def _judge(self, pod: Pod, address: IP, port: int, *, is_masqueraded: bool) -> bool:
        """Asks the policies about one endpoint.

        Those of the client's node see the packet after this node has replaced its destination, and before its source
        is; those of the endpoint's node, if it is another one, see the source replaced.
        """
        text, protocol = endpoint_text(address, port), self._result.protocol
        is_here = self._pod_node == self._result.node
        owner = self._model.owner(address)
        seen: Pod | IP = pod
        if is_masqueraded and not (is_here and owner is not None and owner.node == self._result.node):
            nodes = self._model.node_addresses(self._result.node)
            seen = next((ip for ip in sorted(nodes, key=_family) if ip.version == address.version), self._to.address)
        to: tuple[IP, int] = (address, port) if is_here else (self._to.address, self._to.port)
        try:
            leaving = explain(self._model, pod, *to, protocol)
            arriving = explain(self._model, seen, address, port, protocol)
        except Unknown as error:
            self._result.steps.append(Step(where=POLICY, what=text, verdict=str(error)))
            return False
        judgements = [part for part in leaving.judgements if part.direction == EGRESS]
        judgements += [part for part in arriving.judgements if part.direction == INGRESS]
        allowed = all(part.allowed for part in judgements)
        reasons = "; ".join(f"{part.direction.lower()}: {part.reason}" for part in judgements)
        verdict = f"{'allowed' if allowed else 'denied'} ({reasons})"
        self._result.steps.append(Step(where=POLICY, what=text, verdict=verdict))
        return allowed

    def _probe(self, pod: Pod) -> None:
        """Sends a packet from the pod, and looks where the kernel sent it."""
        version, protocol, result = self._to.address.version, PROTOCOLS[self._to.protocol], self._result
        netns = next(self._namespaces_of(pod), None)
        if netns is None:
            raise CannotExplain(f"the network namespace of {pod} was not found on {self._pod_node}")
        with contextlib.closing(KernelConntrack(self._netns)) as conntrack:
            before = {connection.identity for connection in conntrack.translations(version, protocol)}
            result.probe = self._send(netns)
            for connection in conntrack.translations(version, protocol):
                ours = (connection.address, connection.port) == (self._to.address.packed, result.port)
                if ours and connection.identity not in before:
                    address = ipaddress.ip_address(connection.answers_address)
                    result.probed_endpoint = endpoint_text(address, connection.answers_port)
        if result.protocol == "TCP":
            result.reachable = result.probe == "connected"

    def _send(self, netns: Path) -> str:
        kind = socket.SOCK_STREAM if self._result.protocol == "TCP" else socket.SOCK_DGRAM
        family = socket.AF_INET if self._to.address.version == 4 else socket.AF_INET6
        with visit(netns):
            opened = socket.socket(family, kind)
        with opened:
            opened.settimeout(PROBE_SECONDS)
            try:
                opened.connect((self._result.address, self._result.port))
                if kind == socket.SOCK_DGRAM:
                    opened.send(b"")
                    return "sent"
            except TimeoutError:
                return f"no answer within {PROBE_SECONDS:g} s"
            except OSError as error:
                return (error.strerror or str(error)).lower()
        return "connected"

    def _namespaces_of(self, pod: Pod) -> Iterator[Path]:
        """Yields the namespaces on the client's node that have its address, as the runtime pinned them."""
        try:
            for namespace in pod_namespaces(self._layout, self._pod_node):
                if any(address.interface.ip in pod.ips for address in namespace.addresses):
                    yield namespace.path
        except RuntimeDown as error:
            raise CannotExplain(str(error)) from error

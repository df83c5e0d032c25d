"""Explains the way of a packet to a Service: the kernel's own rules on the client's node, the policies, and a probe.

Nothing is computed that the kernel can be asked: the chain, the list and the endpoints are elements of the table
`podwire-proxy` on the node of the client. The probe is a packet from the client's network namespace; the connection
tracking of the node shows to which endpoint it went.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from podwire.cluster.up import status_file
from podwire.cluster.up.layout import FIRST, Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.inspect.policy_explain import read_model
from podwire.linux.errors import LinuxError
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import visit
from podwire.nriplugins.network.policy import Model, explain
from podwire.nriplugins.network.policy.explain import Unknown
from podwire.nriplugins.network.policy.values import PROTOCOLS, Pod
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.watch import Object
from podwire.proxy.kernel import Kernel
from podwire.proxy.plan import frontend
from podwire.proxy.program import TABLE, target_of
from podwire.transports import credentials, http_client

USER_AGENT = "podwire-service"
PROBE_SECONDS = 2.0


class CannotExplain(Exception):
    """The Service, its port or the client cannot be looked at; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule or policy on the way."""

    where: str
    what: str
    verdict: str


@dataclass(slots=True, kw_only=True)
class ExplainedService:
    service: str
    address: str
    port: int
    protocol: str
    source: str
    node: str
    steps: list[Step] = field(default_factory=list)
    endpoints: list[str] = field(default_factory=list)
    probe: str = ""
    """How the test packet fared; empty without a client."""
    probed_endpoint: str = ""
    """The endpoint to which the kernel sent it."""
    reachable: bool = False

    def __str__(self) -> str:
        """Text for people."""
        source = f"from {self.source} on {self.node}" if self.source else f"on {self.node}"
        lines = [f"{self.service}: {self.address} {self.protocol} {self.port}, {source}"]
        lines += [f"  {number} {step.where}: {step.what}: {step.verdict}" for number, step in enumerate(self.steps, 1)]
        if self.probe:
            to = f", sent to {self.probed_endpoint}" if self.probed_endpoint else ""
            lines.append(f"  probe: {self.probe}{to}")
        return "\n".join([*lines, f"verdict: {'reachable' if self.reachable else 'not reachable'}"])


async def explain_service(layout: Layout, kubeconfig: Path, name: str, port: str, source: str) -> ExplainedService:
    """`port` is a number or a name, empty for the first; `source` a pod, empty for the first node.

    Raises CannotExplain, BadKubeconfig, ApiError, ClientError, LinuxError.
    """
    kind = BUILTIN.of_kind("v1", "Service")
    assert kind is not None  # noqa: S101 - a built-in kind
    namespace, _, bare = name.rpartition("/")
    async with http_client.connect(credentials.load(kubeconfig), user_agent=USER_AGENT) as http:
        client = Client(http)
        service = await client.get(kind, bare, namespace or "default")
        model = await read_model(client)
    pod = _pod(model, source)
    return _Explanation(layout, model, service, _port(service, port), pod).run()


def _pod(model: Model, source: str) -> Pod | None:
    if not source:
        return None
    namespace, _, name = source.rpartition("/")
    pod = model.find(namespace or "default", name)
    if pod is None or not pod.ips:
        raise CannotExplain(f"--from {source}: pod not found, or without an address yet")
    return pod


def _port(service: Object, asked: str) -> Object:
    ports = service["spec"].get("ports") or []
    for port in ports:
        if asked in ("", str(port["port"]), port.get("name")):
            chosen: Object = port
            return chosen
    raise CannotExplain(f'service {service["metadata"]["name"]} has no port "{asked}"')


class _Explanation:
    def __init__(self, layout: Layout, model: Model, service: Object, port: Object, pod: Pod | None) -> None:
        spec, metadata = service["spec"], service["metadata"]
        address = spec.get("clusterIP") or "None"
        if address == "None":
            raise CannotExplain(f"service {metadata['name']} has no cluster address: clients connect to its pods")
        self._layout, self._model, self._pod = layout, model, pod
        self._ip = ipaddress.ip_address(address)
        self._protocol = PROTOCOLS[port.get("protocol", "TCP")]
        self._result = ExplainedService(
            service=f"{metadata['namespace']}/{metadata['name']}",
            address=address,
            port=port["port"],
            protocol=port.get("protocol", "TCP"),
            source=str(pod) if pod else "",
            node=(pod.node if pod else "") or FIRST,
        )
        own = NodeNamespaces(layout, self._result.node)
        self._netns = own.net if own.exists() else None

    def run(self) -> ExplainedService:
        result = self._result
        allowed = [self._judge(endpoint) for endpoint in self._follow()]
        result.reachable = any(allowed)
        if self._pod is not None and result.protocol in ("TCP", "UDP"):
            self._probe(self._pod)
        return result

    def _step(self, where: str, what: str, verdict: str) -> None:
        self._result.steps.append(Step(where=where, what=what, verdict=verdict))

    def _follow(self) -> list[tuple[str, int]]:
        """Follows the elements of the kernel from the address to the endpoints."""
        version, result = self._ip.version, self._result
        key = frontend(version, result.address, self._protocol, result.port)
        what = f"{result.address} . {result.protocol} . {result.port}"
        with contextlib.closing(Kernel(self._netns)) as kernel:
            unserved = kernel.list(f"unserved{version}").get(key)
            chain = kernel.list(f"frontends{version}").get(key)
            if chain is None:
                verdict = "rejected, nobody is behind it" if unserved else "no rule: the proxy does not know it"
                self._step(f"{TABLE} unserved{version}" if unserved else f"{TABLE} frontends{version}", what, verdict)
                return []
            self._step(f"{TABLE} services, frontends{version}", what, str(chain))
            name = str(chain).removeprefix("goto ")
            target, list_ = target_of(name), kernel.list(f"ids{version}").get(key)
            if not isinstance(list_, bytes) or target is None:
                self._step(f"{TABLE} ids{version}", what, "no list of endpoints")
                return []
            found = kernel.list(f"endpoints{version}").items()
        length = len(self._ip.packed)
        pairs = [
            (str(ipaddress.ip_address(data[:length])), int.from_bytes(data[length : length + 2], "big"))
            for element, data in found
            if isinstance(data, bytes) and element[4 : 4 + len(list_)] == list_
        ]
        result.endpoints = sorted(f"{_bracketed(address)}:{number}" for address, number in pairs)
        how = f"the same for {target.affinity} s" if target.affinity else "at random"
        self._step(f"{TABLE} {name}", f"one of {len(pairs)} endpoints, {how}", f"dnat to {', '.join(result.endpoints)}")
        return sorted(pairs)

    def _judge(self, endpoint: tuple[str, int]) -> bool:
        """Asks the policies about one endpoint: they see the packet after its address was replaced."""
        if self._pod is None:
            return True
        address, number = endpoint
        try:
            verdict = explain(self._model, self._pod, ipaddress.ip_address(address), number, self._result.protocol)
        except Unknown as error:
            self._step("podwire-policy", f"{address}:{number}", str(error))
            return False
        reasons = "; ".join(f"{part.direction.lower()}: {part.reason}" for part in verdict.judgements)
        words = "allowed" if verdict.allowed else "denied"
        self._step("podwire-policy", f"{_bracketed(address)}:{number}", f"{words} ({reasons})")
        return verdict.allowed

    def _probe(self, pod: Pod) -> None:
        """Sends a packet from the pod, and looks where the kernel sent it."""
        version, result = self._ip.version, self._result
        netns = next(self._namespaces_of(pod), None)
        if netns is None:
            raise CannotExplain(f"the network namespace of {pod} was not found on {result.node}")
        with contextlib.closing(KernelConntrack(self._netns)) as conntrack:
            before = {connection.identity for connection in conntrack.translations(version, self._protocol)}
            result.probe = self._send(netns)
            for connection in conntrack.translations(version, self._protocol):
                ours = (connection.address, connection.port) == (self._ip.packed, result.port)
                if ours and connection.identity not in before:
                    address = str(ipaddress.ip_address(connection.answers_address))
                    result.probed_endpoint = f"{_bracketed(address)}:{connection.answers_port}"
        if result.protocol == "TCP":
            result.reachable = result.probe == "connected"

    def _send(self, netns: Path) -> str:
        kind = socket.SOCK_STREAM if self._result.protocol == "TCP" else socket.SOCK_DGRAM
        family = socket.AF_INET if self._ip.version == 4 else socket.AF_INET6
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
        status = status_file.read(self._layout)
        name = "runtime" if self._result.node in ("", FIRST) else f"runtime@{self._result.node}"
        entries = [entry for entry in (status.components if status else ()) if entry.name == name]
        if not entries:
            raise CannotExplain(f"the runtime of node {self._result.node} does not run: is the cluster up?")
        root = Path(f"/proc/{entries[0].pid}/root")
        for path in sorted((root / "run/netns").glob("*")):
            with contextlib.suppress(LinuxError, OSError), KernelNetwork(path) as network:
                if any(address.interface.ip in pod.ips for address in network.addresses.list()):
                    yield path


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address

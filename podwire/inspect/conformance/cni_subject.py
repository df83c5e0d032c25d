"""The CNI plugin under test, the pods that it attaches, and the configurations that it gets."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from pathlib import Path
from typing import Any
from zlib import crc32

from podwire.inspect.conformance.report import Unmet
from podwire.linux.errors import DeadlinePassed, LinuxError, TooMuchOutput
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.linux.proc.processes import Finished, run
from podwire.linux.values import Link, Veth
from podwire.protocols.cni.verbs import Invocation

Object = dict[str, Any]

INTERFACE, IPAM, CHAINED = "interface", "ipam", "chained"
RANGE = {"subnet": "10.214.7.0/29", "rangeStart": "10.214.7.2", "rangeEnd": "10.214.7.6", "gateway": "10.214.7.1"}
POOL = 5
"""Addresses of RANGE."""
UPLINK = "uplink"
"""A link of the host, for plugins that need a master."""
OUTPUT_LIMIT = 1 << 20
_NUMBERS = itertools.count()

_HOST_LOCAL: Object = {"type": "host-local", "ranges": [[RANGE]]}
_MASTER: Object = {"master": UPLINK, "ipam": _HOST_LOCAL}
STANDARD: Mapping[str, tuple[str, Object]] = {
    "bridge": (INTERFACE, {"bridge": "cnitest0", "isGateway": True, "ipam": _HOST_LOCAL}),
    "ptp": (INTERFACE, {"ipam": _HOST_LOCAL}),
    "macvlan": (INTERFACE, _MASTER),
    "ipvlan": (INTERFACE, _MASTER),
    "vlan": (INTERFACE, {**_MASTER, "vlanId": 7}),
    "host-local": (IPAM, {"ipam": _HOST_LOCAL}),
    "static": (IPAM, {"ipam": {"type": "static", "addresses": [{"address": "10.214.7.2/29"}]}}),
    "tuning": (CHAINED, {"mtu": 1400}),
    "portmap": (CHAINED, {"capabilities": {"portMappings": True}}),
    "firewall": (CHAINED, {}),
    "bandwidth": (CHAINED, {"ingressRate": 1000000, "ingressBurst": 1000000}),
    "sbr": (CHAINED, {}),
}
"""Kind and configuration of well-known plugins."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A container of a test: its id, and the namespace that is to be attached."""

    id: str
    netns: str
    ifname: str = "eth0"


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished call of the plugin."""

    verb: str
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def object(self) -> Object:
        """The JSON object on standard output. Raises Unmet."""
        try:
            value = json.loads(self.stdout)
        except ValueError as error:
            raise Unmet(f"standard output of {self.verb} is not one JSON object: {error}\n{self.shown}") from error
        if not isinstance(value, dict):
            raise Unmet(f"standard output of {self.verb} is not JSON object\n{self.shown}")
        return value

    @property
    def shown(self) -> str:
        out, err = (stream.decode("utf-8", "replace").strip()[:1000] for stream in (self.stdout, self.stderr))
        return f"{self.verb}: exit code {self.code}\nstdout: {out or '(empty)'}\nstderr: {err or '(empty)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Calls one plugin. Runs in a network namespace that stands for the host, where nothing else is."""

    program: Path
    path: Sequence[Path]
    kind: str
    config: Object
    known_pool: bool
    """Whether the configuration has the address range RANGE."""
    namespaces: KernelNamespaces
    seconds: float = 30.0

    def request(self, **changes: Any) -> Object:
        """The configuration as a runtime passes it; a change to None removes a key."""
        return {key: value for key, value in {**self.config, **changes}.items() if value is not None}

    def at_version(self, version: str) -> "Subject":
        return replace(self, config={**self.config, "cniVersion": version})

    @property
    def version(self) -> str:
        return str(self.config["cniVersion"])

    def call(self, verb: str, pod: Pod | None = None, config: Object | bytes | None = None, **env: str | None) -> Reply:
        """Calls the plugin; `env` changes or removes variables. Raises Unmet when it does not end."""
        merged: dict[str, str | None] = {**self._environment(verb, pod), **env}
        wanted = {name: value for name, value in merged.items() if value is not None}
        config = self.request() if config is None else config
        stdin = config if isinstance(config, bytes) else json.dumps(config).encode()
        try:
            done: Finished = run(
                [str(self.program)], env=wanted, stdin=stdin, deadline=self.seconds, limit=OUTPUT_LIMIT
            )
        except DeadlinePassed as error:
            raise Unmet(f"{verb} did not end within {self.seconds:g} s") from error
        except TooMuchOutput as error:
            raise Unmet(f"{verb} wrote more than {OUTPUT_LIMIT} bytes") from error
        return Reply(verb, done.code, done.stdout, done.stderr)

    def _environment(self, verb: str, pod: Pod | None) -> dict[str, str]:
        path = ":".join(map(str, self.path))
        call = Invocation(verb, path=path)
        if pod is not None:
            call = call._replace(container_id=pod.id, netns=pod.netns, ifname=pod.ifname)
        return {"PATH": os.environ.get("PATH", os.defpath), **call.environment()}

    def killed_after(self, seconds: float, pod: Pod, config: Object) -> bool:
        """Starts ADD and kills it with all its children; returns False when it ended before."""
        env, stdin = self._environment("ADD", pod), json.dumps(config).encode()
        try:
            run([str(self.program)], env=env, stdin=stdin, deadline=seconds, limit=OUTPUT_LIMIT)
        except DeadlinePassed:
            return True
        return False

    def add(self, pod: Pod, **changes: Any) -> Object:
        """ADD that must succeed; returns the result."""
        reply = self.call("ADD", pod, self.request(**({**self.prepared(pod), **changes})))
        if reply.code:
            raise Unmet(f"ADD failed\n{reply.shown}")
        return reply.object

    def delete(self, pod: Pod, **changes: Any) -> None:
        reply = self.call("DEL", pod, self.request(**changes))
        if reply.code:
            raise Unmet(f"DEL failed\n{reply.shown}")

    def prepared(self, pod: Pod) -> Object:
        """Makes the interface that a chained plugin expects; returns what the request has of it."""
        if self.kind != CHAINED:
            return {}
        with KernelNetwork() as host, KernelNetwork(pod.netns) as inside:
            if pod.ifname not in {link.name for link in inside.links.list()}:
                host.links.add(Veth(_host_end(pod), pod.ifname, peer_netns=pod.netns, up=True))
            link = inside.links.get(pod.ifname)
            inside.links.change(link.ifindex, up=True)
            address = ip_interface(f"10.214.8.{int(pod.id.rpartition('-')[2]) % 250 + 2}/24")
            with suppress(LinuxError):  # it has the address already
                inside.addresses.add(link.ifindex, address)
            mac, host_mac = link.mac, host.links.get(_host_end(pod)).mac
        interfaces = [
            {"name": _host_end(pod), "mac": host_mac},
            {"name": pod.ifname, "mac": mac, "sandbox": pod.netns},
        ]
        ips = [{"address": str(address), "gateway": "10.214.8.1", "interface": 1}]
        result = {"cniVersion": self.version, "interfaces": interfaces, "ips": ips, "routes": [], "dns": {}}
        return {"prevResult": result}

    @contextmanager
    def pods(self, *names: str) -> Iterator[list[Pod]]:
        """Pods with new namespaces. Afterwards they are detached and removed, whatever the case did."""
        unique = [f"{name}-{next(_NUMBERS)}" for name in names]
        made = [Pod(f"podwire-test-{name}", str(self.namespaces.create(name).path)) for name in unique]
        try:
            yield made
        finally:
            for pod in made:
                with suppress(Unmet):
                    self.call("DEL", pod)
            for name in unique:
                with suppress(LinuxError):
                    self.namespaces.remove(name)

    def gone(self, pod: Pod) -> None:
        """The namespace of a pod ends without DEL."""
        self.namespaces.remove(Path(pod.netns).name)


def _host_end(pod: Pod) -> str:
    return f"h{crc32(pod.id.encode()):x}"


def links_of(netns: str | None = None) -> dict[str, Link]:
    """The links of a namespace by name, without the loopback; None is the host of the test."""
    with KernelNetwork(netns) as network:
        return {link.name: link for link in network.links.list() if link.name != "lo"}


def addresses_of(netns: str, name: str) -> set[str]:
    with KernelNetwork(netns) as network:
        return {str(address.interface) for address in network.addresses.list(network.links.get(name).ifindex)}

"""A model of Services and of a counter, with the rules that hold whatever is killed. Pure.

| rule                                                                                | checked            |
|-------------------------------------------------------------------------------------|--------------------|
| an acknowledged Service exists with its UID and address until its deletion          | with every list    |
| two Services have no address in common                                              | with every list    |
| the endpoints of a Service are the ready pods that it selects                       | when it is quiet   |
| a pod answers at its own address, and a Service by one of its pods, on every node   | when it is quiet   |
| the address of a deleted Service does not answer                                    | when it is quiet   |
| a counter has the last value that was acknowledged, or one that was sent later      | with every read    |
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.cluster.chaos.model import Object, Wish, is_running, shared

GROUPS = 3
"""A pod belongs to one group, a Service selects one."""
GROUP_LABEL = "chaos.podwire.dev/group"
SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(slots=True)
class ModelService:
    name: str
    group: str
    wish: Wish = Wish.ASKED
    uid: str = ""
    address: str = ""


class ServiceModel:
    """The Services of one run."""

    def __init__(self) -> None:
        self._services: dict[str, ModelService] = {}
        self._freed: set[str] = set()
        """Addresses of deleted Services, since the last quiet time."""

    def asked(self, name: str, group: str) -> None:
        self._services[name] = ModelService(name, group)

    def created(self, name: str, service: Object) -> None:
        known = self._services[name]
        known.uid, known.address = service["metadata"]["uid"], service["spec"]["clusterIP"]
        if known.wish is Wish.ASKED:
            known.wish = Wish.CREATED

    def deleting(self, name: str) -> None:
        known = self._services[name]
        known.wish = Wish.DELETED
        self._freed.add(known.address)

    def acknowledged(self) -> list[str]:
        return [service.name for service in self._services.values() if service.wish is Wish.CREATED]

    def alive(self) -> list[str]:
        return [service.name for service in self._services.values() if service.wish is not Wish.DELETED]

    def observe(self, services: Iterable[Object], known: Collection[str]) -> list[str]:
        """Compares a list with the model; `known` were acknowledged before it was asked for."""
        listed = {service["metadata"]["name"]: service for service in services}
        wrong = []
        for service in self._services.values():
            found = listed.get(service.name)
            if service.wish is not Wish.CREATED or service.name not in known:
                continue
            if found is None or found["metadata"]["uid"] != service.uid:
                state = "lost" if found is None else f"now {found['metadata']['uid']}"
                wrong.append(f"service {service.name} was acknowledged with uid {service.uid}, and is {state}")
            elif found["spec"]["clusterIP"] != service.address:
                wrong.append(
                    f"service {service.name} had the address {service.address} and has {found['spec']['clusterIP']}"
                )
        uses = [(address, f"service {name}") for name, item in listed.items() for address in item["spec"]["clusterIPs"]]
        return [*wrong, *shared("service address", uses)]

    def unfinished(self, slices: Iterable[Object], pods: Iterable[Object]) -> list[str]:
        """Returns the differences between endpoints and ready pods, once all faults are over."""
        endpoints: dict[str, set[str]] = {}
        for item in slices:
            name = item["metadata"].get("labels", {}).get(SERVICE_LABEL, "")
            if item["addressType"] == "IPv4":
                endpoints.setdefault(name, set()).update(_ready_addresses(item))
        running = running_by_group(pods)
        wrong = []
        for service in self._services.values():
            published = endpoints.pop(service.name, set())
            if service.wish is Wish.DELETED:
                wrong += [f"service {service.name} was deleted and has endpoints"] if published else []
                continue
            expected = set(running.get(service.group, {}).values())
            wrong += [
                f"service {service.name} has no endpoint for {address}" for address in sorted(expected - published)
            ]
            wrong += [
                f"service {service.name} has the endpoint {address}, which is not the address of a ready pod"
                for address in sorted(published - expected)
            ]
        return wrong

    def requests(self, pods: Iterable[Object]) -> "list[Request]":
        """Returns requests that every node must be able to make, with the answers that are right."""
        running = running_by_group(pods)
        found = [
            Request(f"pod {name}", address, POD_PORT, frozenset({name}))
            for group in running.values()
            for name, address in group.items()
        ]
        in_use = set()
        for service in self._services.values():
            if service.wish is Wish.CREATED:
                in_use.add(service.address)
                names = frozenset(running.get(service.group, {}))
                found.append(Request(f"service {service.name}", service.address, SERVICE_PORT, names))
        freed = sorted(self._freed - in_use - {""})
        return [*found, *(Request("a deleted service", address, SERVICE_PORT, frozenset()) for address in freed)]

    def quiet(self) -> None:
        """Everything is as it should be: addresses of deleted Services are not looked at again."""
        self._freed.clear()
        self._services = {name: service for name, service in self._services.items() if service.wish is not Wish.DELETED}


POD_PORT = 8080
SERVICE_PORT = 80


@dataclass(frozen=True, slots=True)
class Request:
    """A request by HTTP, and the names that may answer it; none: there must not be an answer."""

    subject: str
    address: str
    port: int
    names: frozenset[str]

    def problem(self, node: str, answer: str) -> str:
        """Returns what is wrong with an answer; '' is none. Empty if it is right."""
        if answer in self.names or (not answer and not self.names):
            return ""
        expected = " or ".join(sorted(self.names)) or "nobody"
        return f"{self.subject} at {self.address}: answered by {answer or 'nobody'} on {node}, expected {expected}"


class CounterModel:
    """A number that one writer increases, by requests that are repeated until there is an answer."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0

    def observe(self, value: int, acknowledged_before: int) -> list[str]:
        """`acknowledged_before` is the last acknowledged value when the read was sent."""
        if acknowledged_before <= value <= self.sent:
            return []
        return [f"the counter is {value}; {acknowledged_before} was acknowledged, and {self.sent} was sent last"]


def running_by_group(pods: Iterable[Object]) -> Mapping[str, dict[str, str]]:
    """Returns the addresses of ready pods by name, for each group."""
    groups: dict[str, dict[str, str]] = {}
    for pod in pods:
        meta = pod["metadata"]
        if is_running(pod) and "deletionTimestamp" not in meta:
            groups.setdefault(meta.get("labels", {}).get(GROUP_LABEL, ""), {})[meta["name"]] = pod["status"]["podIP"]
    return groups


def _ready_addresses(item: Mapping[str, Any]) -> set[str]:
    return {
        address
        for endpoint in item.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready")
        for address in endpoint["addresses"]
    }

"""Participants of the diagrams: names, order, and how User-Agents and sockets map to them."""

import re

USER, KUBECTL, API_SERVER = "User", "KubeCtl", "APIServer"
STORE, SQLITE, MEMORY = "etcd", "SQLite", "Memory"
SCHEDULER, CONTROLLERS, KUBELET = "Scheduler", "Controllers", "Kubelet"
RUNTIME, CNI_PLUGIN, IPAM, NETWORK_PLUGIN = "ContainerRuntime", "CNIPlugin", "IPAM", "NetworkPlugin"
DEVICE_PLUGIN, NETWORK_DRIVER, CLUSTER_DNS, PROXY = "DevicePlugin", "NetworkDriver", "ClusterDNS", "ServiceProxy"
POD, ENDPOINT = "Pod", "Endpoint"
"""The ends of a test packet."""

ORDER = (
    USER,
    KUBECTL,
    API_SERVER,
    STORE,
    SQLITE,
    MEMORY,
    SCHEDULER,
    CONTROLLERS,
    KUBELET,
    RUNTIME,
    CNI_PLUGIN,
    IPAM,
    NETWORK_PLUGIN,
    POD,
    PROXY,
    ENDPOINT,
    DEVICE_PLUGIN,
    NETWORK_DRIVER,
)
"""From left to right; other participants come after them."""

_AGENTS = {
    "kubectl": KUBECTL,
    "kube-scheduler": SCHEDULER,
    "podwire-scheduler": SCHEDULER,
    "kubelet": KUBELET,
    "podwire-kubelet": KUBELET,
    "kube-controller-manager": CONTROLLERS,
    "podwire-controllers": CONTROLLERS,
    "kube-apiserver": API_SERVER,
    "podwire-dns": CLUSTER_DNS,
    "podwire-nri-network": NETWORK_PLUGIN,
    "nri-network": NETWORK_PLUGIN,
    "podwire-network-driver": NETWORK_DRIVER,
    "network-driver": NETWORK_DRIVER,
    "dranet": NETWORK_DRIVER,
    "kube-proxy": PROXY,
    "podwire-proxy": PROXY,
}
_PLUGIN = re.compile(r"\A\d\d-")
"""Runtimes name an NRI plugin by its index and its name."""

_NETWORK_DRIVERS = ("net.podwire.dev", "dra.net")
"""The names of our driver and of dranet."""

UNNAMED = "Client"

STORES = frozenset((STORE, SQLITE, MEMORY))
"""The names of the store: it is called what it is. Flows call it etcd, as people do."""


def of_store(url: str) -> str:
    """Returns the participant of a store by its URL; empty is the default, SQLite."""
    scheme = url.partition(":")[0]
    return {"etcd": STORE, "memory": MEMORY}.get(scheme, SQLITE)


def role(participant: str) -> str:
    """Returns the participant as flows name it."""
    return STORE if participant in STORES else participant


def of_agent(agent: str) -> str:
    """Returns the participant of a User-Agent; unknown agents keep the name that they send."""
    words = agent.split()
    name = words[0].partition("/")[0] if words else ""
    return _AGENTS.get(_PLUGIN.sub("", name)) or name or UNNAMED


def of_socket(socket: str) -> str:
    """Returns the driver whose directory a socket is in; empty for sockets of device plugins."""
    _, below, rest = socket.rpartition("/plugins/")
    driver, _, _ = rest.partition("/")
    return "" if not below or not driver else NETWORK_DRIVER if driver in _NETWORK_DRIVERS else driver


def in_order(names: set[str]) -> list[str]:
    """Returns names in the order in which they are drawn."""
    return [name for name in ORDER if name in names] + sorted(names - set(ORDER))

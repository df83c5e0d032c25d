"""Who takes part, as the diagrams call them."""

import re

USER, KUBECTL, API_SERVER, STORE = "User", "KubeCtl", "APIServer", "etcd"
SCHEDULER, CONTROLLERS, KUBELET = "Scheduler", "Controllers", "Kubelet"
RUNTIME, CNI_PLUGIN, IPAM, NETWORK_PLUGIN = "ContainerRuntime", "CNIPlugin", "IPAM", "NetworkPlugin"
DEVICE_PLUGIN, NETWORK_DRIVER = "DevicePlugin", "NetworkDriver"

ORDER = (
    USER,
    KUBECTL,
    API_SERVER,
    STORE,
    SCHEDULER,
    CONTROLLERS,
    KUBELET,
    RUNTIME,
    CNI_PLUGIN,
    IPAM,
    NETWORK_PLUGIN,
    DEVICE_PLUGIN,
    NETWORK_DRIVER,
)
"""From left to right; whoever is not among them comes after them."""

_AGENTS = {
    "kubectl": KUBECTL,
    "kube-scheduler": SCHEDULER,
    "podwire-scheduler": SCHEDULER,
    "kubelet": KUBELET,
    "podwire-kubelet": KUBELET,
    "kube-controller-manager": CONTROLLERS,
    "podwire-controllers": CONTROLLERS,
    "kube-apiserver": API_SERVER,
    "podwire-nri-network": NETWORK_PLUGIN,
    "nri-network": NETWORK_PLUGIN,
    "podwire-network-driver": NETWORK_DRIVER,
    "network-driver": NETWORK_DRIVER,
    "dranet": NETWORK_DRIVER,
}
_PLUGIN = re.compile(r"\A\d\d-")
"""Runtimes call a plugin of NRI by its index and its name."""

_NETWORK_DRIVERS = ("net.podwire.dev", "dra.net")
"""Ours, and the one that it is after."""

UNNAMED = "Client"


def of_agent(agent: str) -> str:
    """The participant that a User-Agent means; others by the name that they give themselves."""
    words = agent.split()
    name = words[0].partition("/")[0] if words else ""
    return _AGENTS.get(_PLUGIN.sub("", name)) or name or UNNAMED


def of_socket(socket: str) -> str:
    """The driver that listens at a socket, in a folder of its name; empty where sockets of device plugins are."""
    _, below, rest = socket.rpartition("/plugins/")
    driver, _, _ = rest.partition("/")
    return "" if not below or not driver else NETWORK_DRIVER if driver in _NETWORK_DRIVERS else driver


def placed(names: set[str]) -> list[str]:
    """These in the order in which they are drawn."""
    return [name for name in ORDER if name in names] + sorted(names - set(ORDER))

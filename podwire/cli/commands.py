"""The commands of `podwire`, in the groups of its help. A new command is one line here and one module."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module has `configure(parser)` and `run(arguments) -> exit code`."""

    name: str
    module: str
    summary: str
    passes_on: bool = False
    """Whether another program gets the words after our own options."""


GROUPS = {
    "cluster": (
        Command("up", "podwire.cli.up", "Start a cluster on this machine"),
        Command("down", "podwire.cli.down", "Remove a cluster with its pods and everything it created"),
        Command("clusters", "podwire.cli.clusters", "List the clusters of this machine"),
        Command("use", "podwire.cli.use", "Choose the cluster that later commands mean"),
        Command("status", "podwire.cli.status", "Show the processes, nodes and addresses of a cluster"),
        Command("kubectl", "podwire.cli.kubectl", "Run kubectl with the kubeconfig of a cluster", passes_on=True),
        Command("kubeconfig", "podwire.cli.kubeconfig", "Print the path of a cluster's kubeconfig"),
        Command("env", "podwire.cli.env", 'Print shell variables: eval "$(podwire env)"'),
        Command("backup", "podwire.cli.backup", "Save the state of the API while it is used"),
        Command("restore", "podwire.cli.restore", "Write a backup into a new store: SQLite or etcd"),
        Command("token", "podwire.cli.token", "Create, list and delete tokens by which machines join"),
        Command("join", "podwire.cli.join", "Make this machine a node of a cluster"),
        Command("leave", "podwire.cli.leave", "Leave the cluster, with all pods of this machine"),
        Command("install", "podwire.cli.install", "Write systemd units for a cluster or a node"),
        Command("uninstall", "podwire.cli.uninstall", "Remove the systemd units again"),
        Command("node", "podwire.cli.node", "Run a program on a node, with its paths and links; reboot it"),
        Command("image", "podwire.cli.image", "Import, build, list and remove images, without a registry"),
        Command("hardware", "podwire.cli.hardware", "Show hardware profiles; plug and unplug simulated cards"),
    ),
    "look": (
        Command("demo", "podwire.cli.demo", "Start a cluster, run pods, draw their traces, remove it"),
        Command("ui", "podwire.cli.ui", "Serve the live page of a cluster: pods, starts, flows"),
        Command("trace", "podwire.cli.trace", "Draw the start of a pod as a sequence diagram"),
        Command("doctor", "podwire.cli.doctor", "Check what this machine lacks, and what would help"),
        Command("leakcheck", "podwire.cli.leakcheck", "List leftovers: resources that no pod uses any more"),
        Command("policy", "podwire.cli.policy", "Explain which NetworkPolicy allows or denies a connection"),
        Command("service", "podwire.cli.service", "Explain the way of a packet to a Service, rule by rule"),
        Command("retry", "podwire.cli.retry", "Retry now whatever a pod is waiting for"),
    ),
    "plugin tools": (
        Command("cni", "podwire.cli.cni", "Install CNI plugins, run their daemon, call them by hand"),
        Command("nri", "podwire.cli.nri", "Write, test and observe NRI plugins"),
        Command("dra", "podwire.cli.dra", "Test DRA drivers by their sockets"),
        Command("test", "podwire.cli.test", "Run a program that tests plugins, with a cluster of its own"),
        Command("chaos", "podwire.cli.chaos", "Inject random faults into a cluster and check what must hold"),
        Command("failpoints", "podwire.cli.failpoints", "List the failpoints for fault injection in tests"),
        Command("manifests", "podwire.cli.manifests", "Print manifests that install a component on any cluster"),
    ),
    "components, each usable alone with any Kubernetes": (
        Command("apiserver", "podwire.cli.apiserver", "Serve the Kubernetes API from SQLite, etcd or memory"),
        Command("controllers", "podwire.cli.controllers", "Run the controllers: workloads, owners, nodes, …"),
        Command("scheduler", "podwire.cli.scheduler", "Bind pods to nodes"),
        Command("dns", "podwire.cli.dns", "Resolve names of Services and pods, and forward others"),
        Command("kubelet", "podwire.cli.kubelet", "Run the pods of this node on any CRI runtime"),
        Command("hollow", "podwire.cli.hollow", "Run thousands of nodes whose containers are simulated"),
        Command("runtime", "podwire.cli.runtime", "Run pod sandboxes and containers for CRI clients"),
        Command("proxy", "podwire.cli.proxy", "Send packets to Services on to their endpoints"),
        Command("nri-network", "podwire.cli.nri_network", "Apply policies and routes to pods, as an NRI plugin"),
        Command("device-plugin", "podwire.cli.device_plugin", "Offer network devices to a kubelet"),
        Command("network-driver", "podwire.cli.network_driver", "Publish interfaces as DRA devices, and attach them"),
    ),
    "podwire itself": (
        Command("version", "podwire.cli.version", "Print the versions of podwire, Python and the kernel"),
        Command("completion", "podwire.cli.completion", "Print completions for bash, zsh or fish"),
        Command("man", "podwire.cli.man", "Print or write manual pages"),
    ),
}

COMMANDS = tuple(command for group in GROUPS.values() for command in group)

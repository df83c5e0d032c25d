"""What is around the acts: the cluster comes, and goes."""

from podwire.cluster.demo.acts.act import Place
from podwire.cluster.demo.step import Step

HARDWARE = "two-numa"
"""The profile of the node's simulated network cards and GPUs."""


def beginning(place: Place) -> list[Step]:
    return [
        Step(
            name="up",
            sentence="A cluster comes up: a process for each participant, a node of its own, simulated cards.",
            command=place.podwire("up --detach", f"--hardware {HARDWARE}"),
            then=f"export KUBECONFIG={place.layout.kubeconfig}",
            shows="cluster    ready",
        ),
        Step(
            name="the node",
            sentence="One node, and it is ready.",
            command="kubectl get nodes",
            shows=" Ready ",
        ),
    ]


def ending(place: Place) -> list[Step]:
    """For who does not keep the cluster."""
    return [
        Step(
            name="status",
            sentence="What it costs.",
            command=place.podwire("status"),
            since="COMPONENT",
            shows="all together",
        ),
        Step(
            name="down",
            sentence="The cluster goes: processes, namespaces, links, rules, files.",
            command=place.podwire("down"),
            shows="removed the cluster",
        ),
        Step(
            name="leakcheck",
            sentence="Nothing of it is left on this machine.",
            command=place.podwire("leakcheck"),
            shows="nothing is left",
        ),
    ]

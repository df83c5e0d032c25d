"""The way of two pods through a whole cluster, as a table of steps."""

from podwire.cluster.demo.step import Step
from podwire.cluster.up.layout import Layout

WEBSOCKETS = 30
"""The minor version from which kubectl executes over WebSockets; of older ones nothing is run inside pods."""

TELLS = 22
"""The minor version from which kubectl tells the server what was typed."""


def steps(layout: Layout, minor: int) -> list[Step]:
    """For a kubectl of this minor version, until the pods are deleted."""
    talk = [_EXEC, _ADDRESSES, *_PINGS] if minor >= WEBSOCKETS else [_ADDRESSES, *_from_node(layout)]
    return [_up(layout), *_PODS, *talk, _HOST_PORT, *_looks(layout, minor), _DELETE]


def endings(layout: Layout) -> list[Step]:
    """For who does not keep the cluster."""
    return [
        Step(
            name="down",
            sentence="The cluster goes: processes, namespaces, links, rules, files.",
            command=f"podwire down --prefix {layout.prefix}",
            shows="removed the cluster",
        ),
        Step(
            name="leakcheck",
            sentence="Nothing of it is left on this machine.",
            command=f"podwire leakcheck --prefix {layout.prefix}",
            shows="nothing is left",
        ),
    ]


def _up(layout: Layout) -> Step:
    return Step(
        name="up",
        sentence="A cluster comes up: each participant a process, the node in namespaces of its own.",
        command=f"podwire up --detach --prefix {layout.prefix}",
        then=f"export KUBECONFIG={layout.kubeconfig}",
        shows="cluster    ready",
    )


_PODS = [
    Step(
        name="the node",
        sentence="One node, and it is ready.",
        command="kubectl get nodes",
        shows=" Ready ",
    ),
    Step(
        name="apply a pod",
        sentence="A pod goes in: a web server.",
        command="kubectl apply -f web.yaml",
        shows="pod/web created",
    ),
    Step(
        name="it runs",
        sentence="Scheduled, given its network, started.",
        command="kubectl wait --for=condition=Ready pod/web --timeout=50s",
        shows="condition met",
    ),
    Step(
        name="another pod",
        sentence="A second pod, to talk to the first.",
        command="kubectl apply -f client.yaml",
        shows="pod/client created",
    ),
    Step(
        name="it runs, too",
        sentence="It runs, too.",
        command="kubectl wait --for=condition=Ready pod/client --timeout=50s",
        shows="condition met",
    ),
    Step(
        name="look at the pods",
        sentence="Both have addresses.",
        command="kubectl get pods -o wide",
        shows="Running",
    ),
    Step(
        name="describe the pod",
        sentence="What happened to the first one, in the words of scheduler and kubelet.",
        command="kubectl describe pod web",
        since="Events:",
        shows="Started container web",
    ),
    Step(
        name="logs",
        sentence="Its log, through API server and kubelet.",
        command="kubectl logs web",
        shows="web serves on port 80",
    ),
]

_EXEC = Step(
    name="exec",
    sentence="A program inside: the link that the CNI plugin made.",
    command="kubectl exec web -- ip address show eth0",
    shows="inet ",
)

_ADDRESSES = Step(
    name="addresses",
    sentence="The node's address, and the pod's own.",
    command="kubectl get pod web -o jsonpath='{.status.hostIP} {.status.podIPs[*].ip}'",
    learns=("node", "ip", "ip6"),
    shows=".",
)

_PINGS = [
    Step(
        name="IPv4",
        sentence="The pods reach each other.",
        command="kubectl exec client -- ping -c 1 $ip",
        shows="1 packets received, 0% packet loss",
    ),
    Step(
        name="IPv6",
        sentence="Over IPv6, too.",
        command="kubectl exec client -- ping -c 1 $ip6",
        shows="1 packets received, 0% packet loss",
    ),
]


def _from_node(layout: Layout) -> list[Step]:
    wget = f"podwire node exec --prefix {layout.prefix} node-1 -- busybox wget -q -O - "
    return [
        Step(
            name="IPv4",
            sentence="The node reaches its pod.",
            command=f"{wget}http://$ip",
            shows="hello from web",
        ),
        Step(
            name="IPv6",
            sentence="Over IPv6, too.",
            command=f"{wget}http://[$ip6]",
            shows="hello from web",
        ),
    ]


_HOST_PORT = Step(
    name="hostPort",
    sentence="And from outside, by the node's address and the pod's hostPort.",
    command="busybox wget -q -O - http://$node:8080",
    shows="hello from web",
)


def _looks(layout: Layout, minor: int) -> list[Step]:
    return [
        Step(
            name="trace",
            sentence="The way of the pod, as it was recorded: every arrow is a call that was made.",
            command=f"podwire trace web --brief --prefix {layout.prefix}",
            lines=200,
            shows="CNIPlugin",
        ),
        _check(layout, told=minor >= TELLS),
        Step(
            name="status",
            sentence="What it costs.",
            command=f"podwire status --prefix {layout.prefix}",
            since="COMPONENT",
            shows="all together",
        ),
    ]


def _check(layout: Layout, *, told: bool) -> Step:
    whole = "It is the flow that people draw: nothing is missing, swapped or extra."
    return Step(
        name="check",
        sentence=whole if told else "It is the flow that people draw, but for what was typed: this kubectl keeps that.",
        command=f"podwire trace web --check pod --prefix {layout.prefix}",
        refused=not told,
        shows=": no deviations" if told else ": 1 deviations",
    )


_DELETE = Step(
    name="delete",
    sentence="The pods are deleted; kubectl returns when they are gone.",
    command="kubectl delete pod web client",
    shows='pod "client" deleted',
)

"""Act one: a pod's way from kubectl to Running."""

from podwire.cluster.demo.acts.act import TELLS, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step


def act(context: DemoContext) -> Act:
    return Act(
        number=1,
        flow="pod",
        title="A pod starts",
        sentence="kubectl, API server, store, scheduler, kubelet, runtime and CNI plugin bring a pod to Running.",
        pod="web",
        steps=[
            *_PODS,
            _EXEC,
            _ADDRESSES,
            *_PINGS,
            _HOST_PORT,
            *shown(context, "web", "pod", refused=context.minor < TELLS),
            _DELETE,
        ],
        scheduler="CPU, memory, ports",
        dies="no pod gets a network; it is tried again until the plugin answers",
    )


_PODS = [
    applied("web.yaml", "A pod goes in: a web server.", "pod/web created"),
    runs("web"),
    applied("client.yaml", "A second pod, to talk to the first.", "pod/client created"),
    runs("client", "It runs, too."),
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


_HOST_PORT = Step(
    name="hostPort",
    sentence="And from outside, by the node's address and the pod's hostPort.",
    command="busybox wget -q -O - http://$node:8080",
    shows="hello from web",
)

_DELETE = Step(
    name="delete",
    sentence="The pods are deleted; kubectl returns when they are gone.",
    command="kubectl delete pod web client",
    shows='pod "client" deleted',
)

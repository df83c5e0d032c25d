"""Act one: a pod from kubectl to Running."""

from podwire.cluster.demo.acts.act import TELLS, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.manifests import PULLED
from podwire.cluster.demo.step import Step


def act(context: DemoContext) -> Act:
    return Act(
        number=1,
        flow="pod",
        title="A pod starts",
        sentence="kubectl, API server, store, scheduler, kubelet, runtime and CNI plugin bring a pod to Running.",
        pod="web",
        steps=[
            *(_registry(context) if context.registry else []),
            *_PODS,
            _EXEC,
            _ADDRESSES,
            *_PINGS,
            _HOST_PORT,
            *shown(context, "web", "pod", refused=context.minor < TELLS),
            _DELETE,
        ],
        scheduler="CPU, memory, ports",
        dies="pods get no network; retried until the plugin answers",
    )


def _registry(context: DemoContext) -> list[Step]:
    """The image of the first pod is built, and pushed to a registry on the node's loopback."""
    return [
        Step(
            name="build",
            sentence="Build an image with a page in it.",
            command=f"podwire image build-root --name {PULLED} --add index.html:/www/index.html --archive web.tar",
        ),
        Step(
            name="registry",
            sentence="Start a registry on the node.",
            command=context.on_node(f"env -C {context.layout.prefix} docker-registry serve registry.yml"),
            stays=True,
            shows="listening on",
        ),
        Step(
            name="push",
            sentence="Push the image.",
            command=context.on_node(
                "skopeo --insecure-policy copy --dest-tls-verify=false "
                f"oci-archive:{context.layout.prefix}/web.tar docker://{PULLED}"
            ),
            shows="Writing manifest",
        ),
    ]


_PODS = [
    applied("web.yaml", "Create a pod: a web server.", "pod/web created"),
    runs("web"),
    applied("client.yaml", "Create a second pod as a client.", "pod/client created"),
    runs("client", "Wait until it runs, too."),
    Step(
        name="look at the pods",
        sentence="Both pods have addresses.",
        command="kubectl get pods -o wide",
        shows="Running",
    ),
    Step(
        name="describe the pod",
        sentence="Events of the first pod, from scheduler and kubelet.",
        command="kubectl describe pod web",
        since="Events:",
        shows="Started container web",
    ),
    Step(
        name="logs",
        sentence="Read its log, through API server and kubelet.",
        command="kubectl logs web",
        shows="web serves on port 80",
    ),
]

_EXEC = Step(
    name="exec",
    sentence="Run a program inside: eth0 is the link that the CNI plugin created.",
    command="kubectl exec web -- ip address show eth0",
    shows="inet ",
)

_ADDRESSES = Step(
    name="addresses",
    sentence="The addresses of the node and of the pod.",
    command="kubectl get pod web -o jsonpath='{.status.hostIP} {.status.podIPs[*].ip}'",
    learns=("node", "ip", "ip6"),
    shows=".",
)

_PINGS = [
    Step(
        name="IPv4",
        sentence="The pods reach each other over IPv4.",
        command="kubectl exec client -- ping -c 1 $ip",
        shows="1 packets received, 0% packet loss",
    ),
    Step(
        name="IPv6",
        sentence="And over IPv6.",
        command="kubectl exec client -- ping -c 1 $ip6",
        shows="1 packets received, 0% packet loss",
    ),
]


_HOST_PORT = Step(
    name="hostPort",
    sentence="Reach the pod from outside, by the node's address and the hostPort.",
    command="busybox wget -q -O - http://$node:8080",
    shows="hello from web",
)

_DELETE = Step(
    name="delete",
    sentence="Delete the pods; kubectl returns when they are gone.",
    command="kubectl delete pod web client",
    shows='pod "client" deleted',
)

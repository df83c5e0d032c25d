"""Act five: devices that a pod claims, with a network driver: DRA and NRI together."""

from podwire.cluster.demo.acts.act import NODE, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step

KUBECONFIG = "/var/lib/podwire/identities/network-driver.kubeconfig"


def act(context: DemoContext) -> Act:
    return Act(
        number=5,
        flow="network-driver",
        title="A network driver (DRA + NRI)",
        sentence="A driver publishes devices; the scheduler chooses by attributes; no pod starts without its devices.",
        pod="fast",
        steps=[
            Step(
                name="network-driver",
                sentence="Start the driver as a process on the node; on other clusters it is a DaemonSet.",
                command=context.on_node(f"podwire network-driver --node-name {NODE} --kubeconfig {KUBECONFIG}"),
                stays=True,
                shows="published",
            ),
            Step(
                name="slices",
                sentence="The devices: eight network cards on two NUMA nodes, and eight GPUs.",
                command="kubectl get resourceslices",
                shows="net.podwire.dev",
            ),
            applied(
                "claims.yaml",
                "Create two pods; each claims a card and a GPU below the same PCIe root.",
                "pod/fast created",
            ),
            runs("fast"),
            runs("peer", "Wait for the other pod."),
            _CLAIM,
            _PING,
            *shown(context, "fast", "network-driver"),
            _DELETE,
        ],
        scheduler="every device: speed, NUMA node, PCIe root, allocation",
        dies="no container starts without its devices; the pod waits, with the reason",
    )


_CLAIM = Step(
    name="claim",
    sentence="The devices that were allocated, and the interface in the pod.",
    command="kubectl get resourceclaim fast -o jsonpath="
    '\'{.status.allocation.devices.results[*].device}{"\\n"}{.status.devices[*].networkData}{"\\n"}\'',
    shows="192.0.2.1/24",
)

_PING = Step(
    name="ping",
    sentence="Ping from card to card, not over the pod network.",
    command="kubectl exec fast -- ping -c 1 -I net1 192.0.2.2",
    shows="1 packets received, 0% packet loss",
)

_DELETE = Step(
    name="delete fast",
    sentence="Delete the pods; the cards are restored on the node.",
    command="kubectl delete pod fast peer",
    shows='pod "fast" deleted',
)

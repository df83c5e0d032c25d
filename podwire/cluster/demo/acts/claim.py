"""Act five: devices that a pod claims, by a network driver: DRA and NRI together."""

from podwire.cluster.demo.acts.act import NODE, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step

KUBECONFIG = "/var/lib/podwire/identities/network-driver.kubeconfig"


def act(context: DemoContext) -> Act:
    return Act(
        number=5,
        flow="network-driver",
        title="A network driver (DRA + NRI)",
        sentence="A driver publishes devices; the scheduler chooses by what they are; unattached no pod starts.",
        pod="fast",
        steps=[
            Step(
                name="network-driver",
                sentence="The driver, a process on the node; in a cluster of yours it is a DaemonSet.",
                command=context.on_node(f"podwire network-driver --node-name {NODE} --kubeconfig {KUBECONFIG}"),
                stays=True,
                shows="published",
            ),
            Step(
                name="slices",
                sentence="What it found: eight network cards on two NUMA nodes, and beside them eight GPUs.",
                command="kubectl get resourceslices",
                shows="net.podwire.dev",
            ),
            applied("claims.yaml", "Two pods: each claims a card and a GPU below one PCIe root.", "pod/fast created"),
            runs("fast"),
            runs("peer", "And the other one."),
            _CLAIM,
            _PING,
            *shown(context, "fast", "network-driver"),
            _DELETE,
        ],
        scheduler="every device: speed, NUMA node, PCIe root, who has it",
        dies="no container starts unattached; the pod waits and says why",
    )


_CLAIM = Step(
    name="claim",
    sentence="What the claim was given, and what became of it in the pod.",
    command="kubectl get resourceclaim fast -o jsonpath="
    '\'{.status.allocation.devices.results[*].device}{"\\n"}{.status.devices[*].networkData}{"\\n"}\'',
    shows="192.0.2.1/24",
)

_PING = Step(
    name="ping",
    sentence="From card to card, past the pods' own network.",
    command="kubectl exec fast -- ping -c 1 -I net1 192.0.2.2",
    shows="1 packets received, 0% packet loss",
)

_DELETE = Step(
    name="delete fast",
    sentence="The pods go, and the cards are on the node again as they were.",
    command="kubectl delete pod fast peer",
    shows='pod "fast" deleted',
)

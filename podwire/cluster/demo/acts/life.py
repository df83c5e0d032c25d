"""Act two: a pod's network, from ADD and CHECK to DEL."""

from podwire.cluster.demo.acts.act import Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step


def act(context: DemoContext) -> Act:
    return Act(
        number=2,
        flow="cni",
        title="The life cycle of a pod's network",
        sentence="The runtime calls the CNI plugin with ADD, CHECK and DEL; each time the plugin calls its IPAM.",
        pod="life",
        steps=[
            applied("life.yaml", "Create a pod that may change its own network.", "pod/life created"),
            runs("life"),
            _BREAK,
            _DELETE,
            *shown(context, "life", "cni"),
        ],
        scheduler="nothing about networks",
        dies="kubelet and runtime retry; leftovers of a killed ADD are found by their record",
    )


_BREAK = Step(
    name="break",
    sentence="Delete the default route inside the pod: CHECK detects it, and an event reports it.",
    command="kubectl get events --field-selector involvedObject.name=life --watch",
    meanwhile="kubectl exec life -- ip route del default",
    shows="NetworkCheckFailed",
)

_DELETE = Step(
    name="delete",
    sentence="Delete the pod: DEL removes the link and releases the address.",
    command="kubectl delete pod life",
    shows='pod "life" deleted',
)

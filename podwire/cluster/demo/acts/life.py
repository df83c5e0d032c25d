"""Act two: a pod's network from ADD over CHECK to DEL."""

from podwire.cluster.demo.acts.act import Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step


def act(context: DemoContext) -> Act:
    return Act(
        number=2,
        flow="cni",
        title="The life of a pod's network",
        sentence="CNI adds it, checks that it stays what it was, and deletes it; each time the plugin asks its IPAM.",
        pod="life",
        steps=[
            applied("life.yaml", "A pod that may change its own network.", "pod/life created"),
            runs("life"),
            _BREAK,
            _DELETE,
            *shown(context, "life", "cni"),
        ],
        scheduler="nothing of networks",
        dies="kubelet and runtime try again; what a killed ADD left is found by its record",
    )


_BREAK = Step(
    name="break",
    sentence="The pod loses its route: CHECK finds it at once, and an event says so.",
    command="kubectl get events --field-selector involvedObject.name=life --watch",
    meanwhile="kubectl exec life -- ip route del default",
    shows="NetworkCheckFailed",
)

_DELETE = Step(
    name="delete",
    sentence="The pod is deleted: DEL gives link and address back.",
    command="kubectl delete pod life",
    shows='pod "life" deleted',
)

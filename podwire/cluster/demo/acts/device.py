"""Act four: network devices as extended resources, by a device plugin."""

from podwire.cluster.demo.acts.act import NODE, WAITS, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step


def act(context: DemoContext) -> Act:
    return Act(
        number=4,
        flow="device-plugin",
        title="A device plugin",
        sentence="A plugin lists devices; the kubelet counts them, chooses, and has them allocated for each container.",
        pod="router",
        steps=[
            Step(
                name="device-plugin",
                sentence="The plugin: device files, and four links that it makes on the node's uplink.",
                command=context.on_node(f"podwire device-plugin --config {context.layout.prefix}/pools.yaml"),
                stays=True,
                shows="registered",
            ),
            *([_COUNTED] if context.minor >= WAITS else []),
            applied("router.yaml", "A pod with one of each.", "pod/router created"),
            runs("router"),
            Step(
                name="router's log",
                sentence="What its container was told of them.",
                command="kubectl logs router",
                shows="PODWIRE_DEVICE_VLAN",
            ),
            *shown(context, "router", "device-plugin"),
            Step(
                name="delete router",
                sentence="It goes, and its devices are free again.",
                command="kubectl delete pod router",
                shows='pod "router" deleted',
            ),
        ],
        scheduler="how many devices a node has left",
        dies="devices count as unhealthy; the pod waits, with the reason in an event",
    )


_COUNTED = Step(
    name="counted",
    sentence="The node has them.",
    command=f"kubectl wait --for=jsonpath='{{.status.allocatable.net\\.podwire\\.dev/vlan}}'=4 node/{NODE}",
    shows="condition met",
)

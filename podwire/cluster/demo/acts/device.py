"""Act four: network devices as extended resources, with a device plugin."""

from podwire.cluster.demo.acts.act import NODE, WAITS, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step


def act(context: DemoContext) -> Act:
    return Act(
        number=4,
        flow="device-plugin",
        title="A device plugin",
        sentence="A plugin lists devices; the kubelet counts them, chooses, and calls Allocate for each container.",
        pod="router",
        steps=[
            Step(
                name="device-plugin",
                sentence="Start the plugin: device files, and four macvlan links on the node's uplink.",
                command=context.on_node(f"podwire device-plugin --config {context.layout.prefix}/pools.yaml"),
                stays=True,
                shows="registered",
            ),
            *([_COUNTED] if context.minor >= WAITS else []),
            applied("router.yaml", "Create a pod with one device of each kind.", "pod/router created"),
            runs("router"),
            Step(
                name="router's log",
                sentence="The devices in the environment of its container.",
                command="kubectl logs router",
                shows="PODWIRE_DEVICE_VLAN",
            ),
            *shown(context, "router", "device-plugin"),
            Step(
                name="delete router",
                sentence="Delete the pod; its devices are free again.",
                command="kubectl delete pod router",
                shows='pod "router" deleted',
            ),
        ],
        scheduler="the number of free devices of a node",
        dies="devices are unhealthy; the pod waits, and an event has the reason",
    )


_COUNTED = Step(
    name="counted",
    sentence="The node reports them as allocatable.",
    command=f"kubectl wait --for=jsonpath='{{.status.allocatable.net\\.podwire\\.dev/vlan}}'=4 node/{NODE}",
    shows="condition met",
)

"""Act three: a network plugin completes the network of pods, with NRI and custom resources."""

from podwire.cluster.demo.acts.act import NODE, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step

KUBECONFIG = "/var/lib/podwire/identities/nri-network.kubeconfig"


def act(context: DemoContext) -> Act:
    return Act(
        number=3,
        flow="nri",
        title="A network plugin (NRI)",
        sentence="After CNI the runtime calls a network plugin, which applies routes and policies from the API server.",
        pod="db",
        steps=[
            applied(
                "nri-network.yaml",
                "Create the plugin's custom resource definitions.",
                "podroutes.net.podwire.dev created",
            ),
            Step(
                name="nri-network",
                sentence="Start the plugin as a process on the node; on other clusters it is a DaemonSet.",
                command=context.on_node(f"podwire nri-network --node-name {NODE} --kubeconfig {KUBECONFIG}"),
                stays=True,
                shows="network plugin is running",
            ),
            applied(
                "rules.yaml",
                "Create a route, and a policy that lets only `friend` reach the database.",
                "networkpolicy",
            ),
            applied(
                "db.yaml",
                "Create the database, which requires the plugin and the route, and two clients.",
                "pod/db created",
            ),
            runs("db"),
            runs("friend", "Wait for the client `friend`."),
            runs("stranger", "Wait for the client `stranger`."),
            *_TALK,
            *shown(context, "db", "nri"),
            _DELETE,
        ],
        scheduler="nothing about networks",
        dies="pods that require it wait; running pods keep their rules in the kernel",
    )


_TALK = [
    Step(
        name="address",
        sentence="The address of the database.",
        command="kubectl get pod db -o jsonpath='{.status.podIP}'",
        learns=("db",),
        shows=".",
    ),
    Step(
        name="friend",
        sentence="The policy allows `friend`.",
        command="kubectl exec friend -- wget -q -O - http://$db",
        shows="hello from db",
    ),
    Step(
        name="stranger",
        sentence="The policy denies `stranger`.",
        command="kubectl exec stranger -- timeout 1 wget -q -O - http://$db",
        refused=True,
        shows="",
    ),
    Step(
        name="route",
        sentence="The route from the PodRoute is in the pod.",
        command="kubectl exec db -- ip route show",
        shows="198.51.100.0/24",
    ),
]

_DELETE = Step(
    name="delete db",
    sentence="Delete the pods.",
    command="kubectl delete pod db friend stranger",
    shows='pod "db" deleted',
)

"""Act three: a network plugin finishes a pod's network, by NRI and custom resources."""

from podwire.cluster.demo.acts.act import NODE, Act, DemoContext, applied, runs, shown
from podwire.cluster.demo.step import Step

KUBECONFIG = "/var/lib/podwire/identities/nri-network.kubeconfig"


def act(context: DemoContext) -> Act:
    return Act(
        number=3,
        flow="nri",
        title="A network plugin (NRI)",
        sentence="After CNI the runtime asks a network plugin, which sets routes and policies from the API server.",
        pod="db",
        steps=[
            applied("nri-network.yaml", "The plugin's own kinds of resources.", "podroutes.net.podwire.dev created"),
            Step(
                name="nri-network",
                sentence="The plugin, a process on the node; in a cluster of yours it is a DaemonSet.",
                command=context.on_node(f"podwire nri-network --node-name {NODE} --kubeconfig {KUBECONFIG}"),
                stays=True,
                shows="network plugin is running",
            ),
            applied("rules.yaml", "A route, and a policy: only friends reach the database.", "networkpolicy"),
            applied(
                "db.yaml",
                "The database, which names the route and needs the plugin; two who want in.",
                "pod/db created",
            ),
            runs("db"),
            runs("friend", "And its friend."),
            runs("stranger", "And somebody else."),
            *_TALK,
            *shown(context, "db", "nri"),
            _DELETE,
        ],
        scheduler="nothing of networks",
        dies="pods that require it wait; those that run keep what they have, it is in the kernel",
    )


_TALK = [
    Step(
        name="address",
        sentence="Its address.",
        command="kubectl get pod db -o jsonpath='{.status.podIP}'",
        learns=("db",),
        shows=".",
    ),
    Step(
        name="friend",
        sentence="The policy lets the friend in.",
        command="kubectl exec friend -- wget -q -O - http://$db",
        shows="hello from db",
    ),
    Step(
        name="stranger",
        sentence="And nobody else.",
        command="kubectl exec stranger -- timeout 1 wget -q -O - http://$db",
        refused=True,
        shows="",
    ),
    Step(
        name="route",
        sentence="The route that the PodRoute asks for.",
        command="kubectl exec db -- ip route show",
        shows="198.51.100.0/24",
    ),
]

_DELETE = Step(
    name="delete db",
    sentence="They go.",
    command="kubectl delete pod db friend stranger",
    shows='pod "db" deleted',
)

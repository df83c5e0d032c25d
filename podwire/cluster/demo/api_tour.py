"""The tour of the API server, as a table of steps."""

from podwire.cluster.demo.step import Step


def steps(minor: int) -> list[Step]:
    """Returns the tour for a kubectl of this minor version: older ones print some things differently."""
    return [*_PODS, *_FERRIES, *_refusals(minor), *_NAMESPACE, *_identity(minor)]


_PODS = [
    Step(
        name="namespaces",
        sentence="The default namespaces exist.",
        command="kubectl get namespaces",
        shows="kube-system",
    ),
    Step(
        name="apply a pod",
        sentence="Create a pod. Defaulting and validation follow upstream.",
        command="kubectl apply -f pod.yaml",
        shows="pod/web created",
    ),
    Step(
        name="look at the pod",
        sentence="It stays Pending: there is no scheduler and no node.",
        command="kubectl get pod web -o wide",
        shows="Pending",
    ),
    Step(
        name="describe the pod",
        sentence="kubectl describe works; these are its first lines.",
        command="kubectl describe pod web",
        lines=9,
        shows="app=web",
    ),
    Step(
        name="watch a change",
        sentence="One kubectl watches while another changes a label; the watch shows it at once.",
        command="kubectl get pods -L tier --watch",
        meanwhile="kubectl label pod web tier=front",
        shows="front",
    ),
]

_FERRIES = [
    Step(
        name="define a kind",
        sentence="Create a custom resource definition with printer columns.",
        command="kubectl apply -f ferries.yaml",
        shows="ferries.harbour.example.com created",
    ),
    Step(
        name="the kind is served",
        sentence="Wait until the server serves it.",
        command="kubectl wait --for=condition=Established crd/ferries.harbour.example.com",
        shows="condition met",
    ),
    Step(
        name="a namespace",
        sentence="Create a namespace.",
        command="kubectl create namespace shop",
        shows="created",
    ),
    Step(
        name="apply a ferry",
        sentence="Create a custom resource.",
        command="kubectl apply -f ferry.yaml",
        shows="created",
    ),
    Step(
        name="look at the ferry",
        sentence="kubectl shows the printer columns; capacity has its default.",
        command="kubectl get ferries -n shop",
        shows="40",
    ),
]


def _refusals(minor: int) -> list[Step]:
    return [
        Step(
            name="a wrong value",
            sentence="A ferry with a capacity of -3 is rejected, and the error names the field.",
            command="kubectl apply -f sunk.yaml",
            refused=True,
            shows="capacity",
        ),
        Step(
            name="a wrong field",
            sentence="A pod with a misspelt field is rejected, too."
            if minor >= 25
            else "A pod with a misspelt field is rejected, too, by this kubectl itself: it reads the OpenAPI document.",
            command="kubectl apply -f misspelt.yaml",
            refused=True,
            shows='unknown field "',
        ),
    ]


_NAMESPACE = [
    Step(
        name="fill the namespace",
        sentence="Create a ConfigMap in the namespace.",
        command="kubectl create configmap timetable -n shop --from-literal=first=06:30",
        shows="created",
    ),
    Step(
        name="delete the namespace",
        sentence="Delete the namespace; kubectl returns when everything in it is gone.",
        command="kubectl delete namespace shop",
        shows="deleted",
    ),
    Step(
        name="nothing is left",
        sentence="Its objects are deleted.",
        command="kubectl get configmaps,ferries -n shop",
        shows="No resources found",
    ),
]


def _identity(minor: int) -> list[Step]:
    review = "create --raw /apis/authentication.k8s.io/v1/selfsubjectreviews -f self-review.json"
    me = "auth whoami" if minor >= 27 else review
    account = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = "create token default" if minor >= 24 else f"create --raw {account} -f token-request.json"
    return [
        Step(
            name="who am I",
            sentence="The identity in the client certificate of the kubeconfig.",
            command=f"kubectl {me}",
            shows="kubernetes-admin",
        ),
        Step(
            name="a token",
            sentence="A token of a service account, as pods get it.",
            command=f"kubectl {token}",
            shows="ey",
        ),
    ]

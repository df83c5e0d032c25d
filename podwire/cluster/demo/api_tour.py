"""A tour of the API server, as a table of steps."""

from podwire.cluster.demo.step import Step


def steps(minor: int) -> list[Step]:
    """The tour for a kubectl of this minor version: older ones say some things differently."""
    return [*_PODS, *_FERRIES, *_refusals(minor), *_NAMESPACE, *_identity(minor)]


_PODS = [
    Step(
        name="namespaces",
        sentence="The namespaces of every cluster are there.",
        command="kubectl get namespaces",
        shows="kube-system",
    ),
    Step(
        name="apply a pod",
        sentence="A pod goes in. It is stored, given its defaults and checked, all as upstream does it.",
        command="kubectl apply -f pod.yaml",
        shows="pod/web created",
    ),
    Step(
        name="look at the pod",
        sentence="It stays Pending: there is no scheduler and no node in this act.",
        command="kubectl get pod web -o wide",
        shows="Pending",
    ),
    Step(
        name="describe the pod",
        sentence="kubectl describe reads it whole; these are its first lines.",
        command="kubectl describe pod web",
        lines=9,
        shows="app=web",
    ),
    Step(
        name="watch a change",
        sentence="One kubectl watches while another changes a label; the watch sees it at once.",
        command="kubectl get pods -L tier --watch",
        meanwhile="kubectl label pod web tier=front",
        shows="front",
    ),
]

_FERRIES = [
    Step(
        name="define a kind",
        sentence="A custom resource definition makes ferries a kind of their own, with columns.",
        command="kubectl apply -f ferries.yaml",
        shows="ferries.harbour.example.com created",
    ),
    Step(
        name="the kind is served",
        sentence="The server says when it serves them.",
        command="kubectl wait --for=condition=Established crd/ferries.harbour.example.com",
        shows="condition met",
    ),
    Step(
        name="a namespace",
        sentence="A namespace for what follows.",
        command="kubectl create namespace shop",
        shows="created",
    ),
    Step(
        name="apply a ferry",
        sentence="A ferry goes in like any other object.",
        command="kubectl apply -f ferry.yaml",
        shows="created",
    ),
    Step(
        name="look at the ferry",
        sentence="It shows the definition's columns; nobody gave it seats, so it has the default.",
        command="kubectl get ferries -n shop",
        shows="40",
    ),
]


def _refusals(minor: int) -> list[Step]:
    strict = minor >= 25
    return [
        Step(
            name="a wrong value",
            sentence="A ferry with -3 seats is refused, and the reason names the field.",
            command="kubectl apply -f sunk.yaml",
            refused=True,
            shows="seats",
        ),
        Step(
            name="a wrong field",
            sentence="A pod with a misspelt field is refused too."
            if strict
            else "A misspelt field only earns a warning from this kubectl, which does not ask for more.",
            command="kubectl apply -f misspelt.yaml",
            refused=strict,
            shows='unknown field "',
        ),
    ]


_NAMESPACE = [
    Step(
        name="fill the namespace",
        sentence="A ConfigMap keeps the ferry company.",
        command="kubectl create configmap timetable -n shop --from-literal=first=06:30",
        shows="created",
    ),
    Step(
        name="delete the namespace",
        sentence="The namespace is deleted; kubectl returns when everything in it is gone.",
        command="kubectl delete namespace shop",
        shows="deleted",
    ),
    Step(
        name="nothing is left",
        sentence="Nothing is left of it.",
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
            sentence="Who is asking: the client certificate in the kubeconfig says so.",
            command=f"kubectl {me}",
            shows="kubernetes-admin",
        ),
        Step(
            name="a token",
            sentence="And a token for a service account, such as pods are given.",
            command=f"kubectl {token}",
            shows="ey",
        ),
    ]

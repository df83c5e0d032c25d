"""Requests to a kubelet on behalf of users, and the relay of its answers; the kubelet here is a test's."""

from urllib.parse import parse_qsl

import pytest

from podwire.apiserver.ports import Kubelet
from podwire.protocols.k8sapi.server_side import Certificate, Response, Stream, Upgrade
from podwire.protocols.k8sapi.status import ApiError, Reason
from tests.apiserver.support import answer_when

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
ADDRESSES = [
    {"type": "Hostname", "address": "n1.example"},
    {"type": "InternalIP", "address": "10.0.0.1"},
    {"type": "InternalIP", "address": "fd00::1"},
]


CHOICES = "choose one of: [a b] or one of the init containers: [first]"


class Kubelets:
    """Keeps what was asked; answers what a test wants."""

    def __init__(self):
        self.asked = []
        self.answer = Response(status=200, body=b"yes", content_type="text/plain")

    async def connect(self, kubelet, path, query, request):
        self.asked.append((kubelet, path, list(query)))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def forward(self, kubelet, path, prefix, request):
        path, _, query = path.partition("?")
        return await self.connect(kubelet, path, parse_qsl(query), request)

    @property
    def last(self):
        _, path, query = self.asked[-1]
        return path, query


@pytest.fixture
def kubelets():
    return Kubelets()


@pytest.fixture
async def api(serve, kubelets):
    return await serve(kubelets=kubelets)


async def add_node(api, name="n1", addresses=ADDRESSES, port=10251):
    await api.made(NODES, {"metadata": {"name": name}})
    endpoints = {"kubeletEndpoint": {"Port": port}} if port else {}
    status = {"addresses": addresses, "daemonEndpoints": endpoints}
    reply = await api.patch(f"{NODES}/{name}/status", {"status": status})
    assert reply.status == 200, reply.raw


@pytest.fixture
async def web(api, pod):
    """A pod with one container on a node."""
    await add_node(api)
    await api.made(PODS, pod(node="n1"))


@pytest.mark.usefixtures("web")
async def test_a_log_is_asked_for_at_the_nodes_first_internal_address(api, kubelets):
    reply = await api.get(f"{PODS}/web/log?follow=true&tailLines=3&limitBytes=9&timestamps=true&stream=All")

    assert (reply.status, reply.body) == (200, "yes")
    assert kubelets.asked[0][0] == Kubelet(node="n1", address="10.0.0.1", port=10251)
    path, query = kubelets.last
    assert path == "/containerLogs/default/web/c"
    assert dict(query) == {
        "follow": "true", "timestamps": "true", "tailLines": "3", "limitBytes": "9", "stream": "All"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("addresses", "address"),
    [
        ([{"type": "Hostname", "address": "n1.example"}], "n1.example"),
        ([{"type": "ExternalIP", "address": "1.2.3.4"}, {"type": "Hostname", "address": "h"}], "h"),
    ],
)
async def test_other_addresses_are_used_as_a_fallback(api, kubelets, pod, addresses, address):
    await add_node(api, addresses=addresses, port=0)
    await api.made(PODS, pod(node="n1"))

    await api.get(f"{PODS}/web/log")

    assert kubelets.asked[0][0] == Kubelet(node="n1", address=address, port=10250)


async def test_a_node_without_an_address_cannot_be_asked(api, pod):
    await add_node(api, addresses=[])
    await api.made(PODS, pod(node="n1"))

    reply = await api.get(f"{PODS}/web/log")

    assert (reply.status, reply.message) == (500, "no preferred addresses found for node n1; known addresses: []")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=1&sinceTime=2026-11-15T10:00:00Z", "at most one of `sinceTime` or `sinceSeconds`"),
        ("stream=stdin", 'stream: Unsupported value: "stdin"'),
        ("stream=Stdout&tailLines=1", "mutually exclusive"),
    ],
)
async def test_options_that_cannot_be_are_refused_here(api, kubelets, query, said):
    reply = await api.get(f"{PODS}/web/log?{query}")

    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert said in reply.message
    assert reply.message.startswith('PodLogOptions "" is invalid: ')
    assert kubelets.asked == []


async def test_a_time_to_begin_at_must_be_one(api, kubelets, pod):
    await add_node(api)
    await api.made(PODS, pod(node="n1"))
    await api.get(f"{PODS}/web/log?sinceTime=2026-11-15T10:00:00%2B01:00")
    assert kubelets.last[1] == [("sinceTime", "2026-11-15T10:00:00+01:00")]
    assert (await api.get(f"{PODS}/web/log?sinceTime=noon")).status == 400


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("container=a", "/containerLogs/default/web/a"),
        ("container=first", "/containerLogs/default/web/first"),
        ("container=x", "container x is not valid for pod web"),
        ("", f"a container name must be specified for pod web, {CHOICES}"),
    ],
)
async def test_of_several_containers_one_must_be_named(api, kubelets, pod, query, path):
    await add_node(api)
    containers = [{"name": name, "image": "busybox:1"} for name in ("first", "a", "b")]
    await api.made(PODS, pod(node="n1", containers=containers[1:], initContainers=containers[:1]))

    reply = await api.get(f"{PODS}/web/log?{query}")

    assert path == (kubelets.last[0] if reply.status == 200 else reply.message)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_command_is_put_in_the_kubelets_words(api, kubelets, method):
    async def run(socket): ...

    kubelets.answer = Upgrade(protocols=("v5.channel.k8s.io",), run=run)
    url = f"{PODS}/web/exec?command=sh&command=-c&command=a%20b&stdin=true&stdout=1&stderr=false&tty=true"
    assert await api.ask(method, url) is kubelets.answer
    assert kubelets.last == (
        "/exec/default/web/c",
        [("input", "1"), ("output", "1"), ("tty", "1"), ("command", "sh"), ("command", "-c"), ("command", "a b")],
    )


@pytest.mark.usefixtures("web")
async def test_attaching_and_port_forwarding(api, kubelets):
    await api.get(f"{PODS}/web/attach?stdout=true&stderr=true")
    assert kubelets.last == ("/attach/default/web/c", [("output", "1"), ("error", "1")])
    await api.get(f"{PODS}/web/portforward?ports=80")
    assert kubelets.last == ("/portForward/default/web", [("port", "80")])


@pytest.mark.usefixtures("web")
async def test_streams_must_be_asked_for(api):
    reply = await api.get(f"{PODS}/web/exec?command=true&tty=true")
    assert (reply.status, reply.message) == (400, "you must specify at least 1 of stdin, stdout, stderr")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("status", "code", "reason", "message"),
    [
        (400, 400, "BadRequest", "no such luck"),
        (404, 404, "NotFound", "no such luck"),
        (500, 500, "InternalError", "no such luck"),
        (503, 503, "InternalError", "no such luck"),
        (403, 500, "InternalError", "the kubelet does not let this API server in: no such luck"),
    ],
)
async def test_a_kubelets_refusal_becomes_a_status(api, kubelets, status, code, reason, message):
    kubelets.answer = Response(status=status, body=b"no such luck\n", content_type="text/plain")

    reply = await api.get(f"{PODS}/web/log")

    assert (reply.status, reply.body["reason"], reply.message) == (code, reason, message)


@pytest.mark.usefixtures("web")
async def test_a_kubelet_that_is_not_there(api, kubelets):
    kubelets.answer = ApiError(Reason.UNKNOWN, 'Get "https://10.0.0.1:10251/": dial tcp', code=500)

    reply = await api.get(f"{PODS}/web/log")

    assert (reply.status, reply.message) == (500, 'Get "https://10.0.0.1:10251/": dial tcp')


@pytest.mark.usefixtures("web")
async def test_a_stream_stays_one(api, kubelets):
    async def chunks():
        yield b"line\n"

    kubelets.answer = Stream(chunks=chunks(), content_type="text/plain")
    answer = await api.ask("GET", f"{PODS}/web/log?follow=true")
    assert (answer.chunks, answer.content_type) == (kubelets.answer.chunks, "text/plain")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("name", ["n1", "n1:10251", "https:n1:10251", "http:n1:10251"])
async def test_a_nodes_proxy_passes_path_and_query_on(api, kubelets, name):
    kubelets.answer = Response(status=404, body=b"404 page not found", content_type="text/plain")

    reply = await api.get(f"{NODES}/{name}/proxy/stats/a%20b?x=1&x=2")

    assert (reply.status, reply.body) == (404, "404 page not found"), "the kubelet's own answer"
    assert kubelets.last == ("/stats/a%20b", [("x", "1"), ("x", "2")])


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(("name", "status"), [("n1:80", 503), ("ftp:n1:10251", 400), ("a:b:c:d", 400), ("n2", 404)])
async def test_other_requests_to_a_node_are_not_proxied(api, kubelets, name, status):
    assert (await api.get(f"{NODES}/{name}/proxy/metrics")).status == status
    assert kubelets.asked == []


@pytest.mark.usefixtures("web")
async def test_an_unauthorized_user_is_not_proxied(api, kubelets):
    assert (await api.get(f"{PODS}/web/log", user=None)).status == 403
    assert kubelets.asked == []


# --- what a user needs besides a connection -----------------------------------------------------------------------

RBAC = "/apis/rbac.authorization.k8s.io/v1"
JANE = Certificate("jane")
EXEC = "exec?command=id&stdout=true&container=c"


@pytest.fixture
async def jane(api, web):
    """Gives jane a role with these verbs on resources of the core group; returns when the server knows it."""

    async def give(**verbs_of):
        rules = [{"verbs": ["get"], "nonResourceURLs": ["/ready"]}]
        for name, verbs in verbs_of.items():
            rules.append({"verbs": verbs, "apiGroups": [""], "resources": [name.replace("_", "/")]})
        await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": "janes"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "janes"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]
        binding = {"metadata": {"name": "janes"}, "roleRef": reference, "subjects": subjects}
        await api.made(f"{RBAC}/clusterrolebindings", binding)
        await answer_when(lambda: api.get("/ready", user=JANE), lambda reply: reply.status == 404)

    return give


@pytest.mark.parametrize(
    ("part", "query"), [("exec", "command=id&stdout=true"), ("attach", "stdout=true"), ("portforward", "ports=80")]
)
async def test_a_command_needs_create_even_if_the_connection_begins_with_a_get(api, kubelets, jane, part, query):
    await jane(**{f"pods_{part}": ["get"]})

    reply = await api.get(f"{PODS}/web/{part}?{query}", user=JANE)

    assert reply.status == 403
    assert f'User "jane" cannot create resource "pods/{part}"' in reply.message
    assert kubelets.asked == []


async def test_a_user_who_may_get_and_create_runs_commands(api, kubelets, jane):
    await jane(pods_exec=["get", "create"])

    assert (await api.get(f"{PODS}/web/{EXEC}", user=JANE)).status == 200
    assert kubelets.last[0] == "/exec/default/web/c"


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("exec/default/web/c?command=id&output=1", 'create resource "pods/exec"'),
        ("exec/default/web/uid/c?command=id", 'create resource "pods/exec"'),
        ("%65xec/default/web/c?command=id", 'create resource "pods/exec"'),
        ("run/default/web/c?cmd=id", 'create resource "pods/exec"'),
        ("attach/default/web/c", 'create resource "pods/attach"'),
        ("portForward/default/web", 'create resource "pods/portforward"'),
        ("containerLogs/default/web/c", 'get resource "pods/log"'),
    ],
)
async def test_a_nodes_proxy_opens_no_pod_that_the_user_may_not_enter(api, kubelets, jane, path, needed):
    await jane(nodes_proxy=["*"], nodes=["*"])

    for call in (api.get, api.post):
        reply = await call(f"{NODES}/n1/proxy/{path}", user=JANE)
        assert (reply.status, f'User "jane" cannot {needed}' in reply.message) == (403, True), reply.raw
    assert kubelets.asked == []


async def test_a_nodes_proxy_answers_what_is_not_about_one_pod(api, kubelets, jane):
    await jane(nodes_proxy=["get"], pods_log=["get"])

    assert (await api.get(f"{NODES}/n1/proxy/metrics", user=JANE)).status == 200
    assert (await api.get(f"{NODES}/n1/proxy/containerLogs/default/web/c", user=JANE)).status == 200

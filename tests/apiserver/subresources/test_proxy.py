"""The proxy of pods, services and nodes: where a request goes, and who may send it. The backends here are a test's."""

import pytest

from podwire.apiserver.ports import Backend
from podwire.protocols.k8sapi.server_side import Certificate, Response
from tests.apiserver.support import answer_when

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
NODES = "/api/v1/nodes"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PORTS = [{"containerPort": 8080, "name": "web"}, {"containerPort": 9090}]


class Backends:
    """Keeps what was forwarded."""

    def __init__(self):
        self.forwarded = []

    async def forward(self, backend, path, prefix, request):
        self.forwarded.append((backend, path, prefix, request.method))
        return Response(status=200, body=b"yes", content_type="text/plain")

    @property
    def last(self):
        return self.forwarded[-1]


@pytest.fixture
def backends():
    return Backends()


@pytest.fixture
async def api(serve, backends):
    return await serve(backends=backends)


async def add_pod(api, pod, name="web", ip="10.0.0.1", **spec):
    body = pod(name, **spec)
    body["spec"]["containers"][0]["ports"] = PORTS
    await api.made(PODS, body)
    await api.patch(f"{PODS}/{name}/status", {"status": {"podIP": ip, "podIPs": [{"ip": ip}]}})


@pytest.mark.parametrize(
    ("name", "scheme", "port"),
    [
        ("web", "http", 8080),
        ("web:9090", "http", 9090),
        ("web:web", "http", 8080),
        ("https:web:443", "https", 443),
        ("http:web:", "http", 8080),
    ],
)
async def test_a_pods_proxy_reaches_the_pods_address(api, backends, pod, name, scheme, port):
    await add_pod(api, pod)

    reply = await api.get(f"{PODS}/{name}/proxy/a/b?x=1&y=%26")

    assert (reply.status, reply.body) == (200, "yes")
    prefix = f"{PODS}/{name}/proxy"
    assert backends.last == (Backend(scheme=scheme, address="10.0.0.1", port=port), "/a/b?x=1&y=%26", prefix, "GET")


@pytest.mark.parametrize(
    ("below", "path"),
    [
        ("/", "/"), ("/a//b/", "/a/b/"), ("/a%2Fb", "/a/b"), ("/a%25b%20c", "/a%25b%20c"), ("/proxy/x", "/proxy/x"),
        ("/status", "/status"), ("/a:b;c=d@e,f$g&h+i", "/a:b;c=d@e,f$g&h+i"), ("/%C3%A9%0D%0A", "/%C3%A9%0D%0A"),
    ],
)  # fmt: skip
async def test_any_path_is_passed_on(api, backends, pod, below, path):
    await add_pod(api, pod)
    assert (await api.get(f"{PODS}/web/proxy{below}")).status == 200
    assert backends.last[1] == path


@pytest.mark.parametrize("below", ["/..", "/a/../../b", "/%2e%2e/x", "/a%2F..%2Fb", "/./a", "/a%00"])
async def test_paths_that_lead_out_of_a_proxy_are_refused(api, backends, pod, below):
    await add_pod(api, pod)
    assert (await api.get(f"{PODS}/web/proxy{below}")).status == 400
    assert backends.forwarded == []


async def test_the_root_without_a_slash_is_redirected(api, backends, pod):
    await add_pod(api, pod)
    reply = await api.get(f"{PODS}/web/proxy?a=b")

    assert (reply.status, reply.headers["location"]) == (301, f"{PODS}/web/proxy/?a=b")
    assert (await api.post(f"{PODS}/web/proxy", {})).status == 200, "a redirect would lose the body"
    assert [path for _, path, _, _ in backends.forwarded] == [""]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_every_method_is_passed_on(api, backends, pod, method):
    await add_pod(api, pod)
    assert (await api.call(method, f"{PODS}/web/proxy/x")).status == 200
    assert backends.last[3] == method


@pytest.mark.parametrize(
    "ip", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "224.0.0.1", "::ffff:127.0.0.1"]
)
async def test_addresses_that_only_the_api_server_reaches_are_refused(api, backends, pod, ip):
    await add_pod(api, pod, ip=ip)
    reply = await api.get(f"{PODS}/web/proxy/")

    assert (reply.status, reply.message) == (400, "address not allowed")
    assert backends.forwarded == []


async def test_a_pod_without_an_address_is_refused(api, pod):
    await api.made(PODS, pod())
    reply = await api.get(f"{PODS}/web:80/proxy/")
    assert (reply.status, reply.message) == (400, "address not allowed")


@pytest.mark.parametrize(
    ("url", "status", "message"),
    [
        (f"{PODS}/a:b:c:d/proxy/", 400, 'invalid pod request "a:b:c:d"'),
        (f"{PODS}/ftp:web:80/proxy/", 400, 'invalid pod request "ftp:web:80"'),
        (f"{PODS}/:80/proxy/", 400, 'invalid pod request ":80"'),
        (f"{PODS}/none/proxy/", 404, 'pods "none" not found'),
        (f"{PODS}/web:99999/proxy/", 503, "error trying to reach service: dial tcp: lookup tcp/99999: unknown port"),
        (f"{SERVICES}/none/proxy/", 404, 'services "none" not found'),
        (f"{SERVICES}/a:b:c:d/proxy/", 400, 'invalid service request "a:b:c:d"'),
        (f"{NODES}/a:b:c:d/proxy/", 400, 'invalid node request "a:b:c:d"'),
    ],
)
async def test_what_is_not_there_is_refused_with_upstreams_words(api, pod, url, status, message):
    await add_pod(api, pod)
    reply = await api.get(url)
    assert (reply.status, reply.message) == (status, message)


async def test_a_services_proxy_reaches_a_ready_endpoint(api, backends, pod):
    await add_pod(api, pod)
    ports = [{"name": "web", "port": 80, "targetPort": 8080}, {"name": "tls", "port": 443}]
    await api.made(SERVICES, {"metadata": {"name": "shop"}, "spec": {"ports": ports}})
    assert (await api.get(f"{SERVICES}/shop:80/proxy/")).message == 'no endpoints available for service "shop"'

    target = {"kind": "Pod", "namespace": "default", "name": "web"}
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "targetRef": target}
    await api.made(SLICES, {
        "metadata": {"name": "shop-1", "labels": {"kubernetes.io/service-name": "shop"}}, "addressType": "IPv4",
        "endpoints": [endpoint], "ports": [{"name": "web", "port": 8080}, {"name": "tls", "port": 8443}],
    })  # fmt: skip
    for name, scheme, port in (("shop:80", "http", 8080), ("https:shop:tls", "https", 8443)):
        assert (await api.get(f"{SERVICES}/{name}/proxy/x")).status == 200
        assert backends.last[0] == Backend(scheme=scheme, address="10.0.0.1", port=port)
    assert (await api.get(f"{SERVICES}/shop:81/proxy/")).message == 'no service port 81 found for service "shop"'


async def test_a_nodes_proxy_reaches_other_ports_of_the_node(api, backends):
    await api.made(NODES, {"metadata": {"name": "n1"}})
    addresses = [{"type": "InternalIP", "address": "10.0.0.9"}]
    await api.patch(f"{NODES}/n1/status", {"status": {"addresses": addresses}})

    assert (await api.get(f"{NODES}/n1:9100/proxy/metrics")).status == 200
    assert backends.last[0] == Backend(scheme="http", address="10.0.0.9", port=9100)


async def test_each_method_needs_its_verb(api, backends, pod):
    await add_pod(api, pod)
    rules = [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"], "resourceNames": ["web"]}]
    await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane"}],
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}  # fmt: skip
    await api.made(f"{RBAC}/clusterrolebindings", binding)
    jane = Certificate("jane")
    await answer_when(lambda: api.get(f"{PODS}/web/proxy/", user=jane), lambda reply: reply.status == 200)

    statuses = {method: (await api.call(method, f"{PODS}/web/proxy/", user=jane)).status
                for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")}  # fmt: skip
    assert statuses == {"GET": 200, "HEAD": 200, "POST": 403, "PUT": 403, "PATCH": 403, "DELETE": 403, "OPTIONS": 403}
    assert (await api.get(f"{PODS}/web:9090/proxy/", user=jane)).status == 403, "a name with a port is another name"


async def test_without_a_client_for_pods_it_is_unavailable(serve, pod):
    api = await serve()
    await add_pod(api, pod)
    reply = await api.get(f"{PODS}/web/proxy/")
    assert (reply.status, reply.body["reason"]) == (503, "ServiceUnavailable")

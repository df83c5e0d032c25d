"""The definitions in a real API server: what it takes, what it refuses, and with which words."""

import asyncio

import pytest
import yaml

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.nriplugins.network import crds, mesh, routes
from podwire.nriplugins.network.resources import GROUP, VERSION
from podwire.protocols.k8sapi.client_side import Client, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError

ADMIN = Certificate("admin", ("system:masters",))
SOON = 40.0
KINDS = {
    "PodRoute": Kind(group=GROUP, version=VERSION, resource="podroutes", kind="PodRoute"),
    "PodMesh": Kind(group=GROUP, version=VERSION, resource="podmeshes", kind="PodMesh"),
}


def resource(kind, spec, name="a"):
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": meta, "spec": spec}


async def served(client, kind):
    """A definition is served a moment after it was taken."""
    async with asyncio.timeout(SOON):
        while True:
            try:
                return await client.list(kind, Scope(namespace="default"))
            except ApiError as error:
                if error.code != 404:
                    raise
            await asyncio.sleep(0.005)


@pytest.fixture
async def api(tmp_path):
    """A client of a server that has both definitions."""
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        client = Client(LoopbackHttp(server.assembled.server.handle, ADMIN))
        client.learn(KINDS.values())
        for crd in crds.ALL:
            await client.create(crd)
        for kind in KINDS.values():
            await served(client, kind)
        yield client


ROUTE = {"destinations": ["10.20.0.0/16"], "via": "10.1.0.2"}
SIX = {"destinations": ["fd20::/64"]}

GOOD = {
    "the least route": ("PodRoute", {"routes": [SIX]}),
    "the fullest route": (
        "PodRoute",
        {
            "podSelector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}],
            },
            "failurePolicy": "Ignore",
            "interface": "net1",
            "table": 4294967295,
            "sources": ["PodIPs", "10.9.0.0/16", "fd09::/64"],
            "routes": [{**ROUTE, "metric": 5, "mtu": 1400, "advmss": 1360, "onLink": True}, SIX],
        },
    ),
    "the least mesh": ("PodMesh", {"inbound": {"port": 15006}}),
    "the fullest mesh": (
        "PodMesh",
        {
            "podSelector": {},
            "failurePolicy": "Fail",
            "proxy": {"uid": 1337, "gid": 1337, "mark": 1337},
            "inbound": {"port": 15006, "excludeCIDRs": ["10.0.0.0/8", "fd00::/8"], "excludePorts": [22]},
            "outbound": {
                "port": 15001,
                "excludeCIDRs": ["10.0.0.0/8"],
                "excludePorts": [22, 53],
                "excludeUIDs": [0],
                "excludeGIDs": [0, 4294967294],
            },
        },
    ),
    "a proxy elsewhere": (
        "PodMesh",
        {"proxy": {"addresses": ["10.1.0.1", "fd01::1"]}, "outbound": {"port": 15001}},
    ),
}


@pytest.mark.parametrize(("kind", "spec"), GOOD.values(), ids=GOOD)
async def test_valid_resources_are_accepted_and_parsed(api, kind, spec):
    stored = await api.create(resource(kind, spec))
    assert {key: stored["spec"][key] for key in spec} == spec
    found = (routes if kind == "PodRoute" else mesh).read(stored)
    assert isinstance(found, routes.PodRoute | mesh.PodMesh), found
    assert found.head.created


async def test_missing_keys_have_defaults(api):
    stored = await api.create(resource("PodRoute", {"routes": [SIX]}))
    assert stored["spec"] == {"failurePolicy": "Fail", "interface": "eth0", "table": 254, "routes": [SIX]}


NETWORK = crds._NETWORK_MESSAGE
BAD_BY_SCHEMA = {
    "no routes": ("PodRoute", {"routes": []}, "spec.routes: Invalid value"),
    "no network": (
        "PodRoute",
        {"routes": [{"destinations": ["there"]}]},
        "spec.routes[0].destinations[0]: Invalid value",
    ),
    "no gateway": ("PodRoute", {"routes": [{**ROUTE, "via": "there"}]}, "spec.routes[0].via"),
    "no link": ("PodRoute", {"routes": [ROUTE], "interface": "a/b"}, "spec.interface: Invalid value"),
    "the kernel's table": ("PodRoute", {"routes": [ROUTE], "table": 255}, '"spec.table" must not validate the schema'),
    "a small MTU": ("PodRoute", {"routes": [{**ROUTE, "mtu": 20}]}, "spec.routes[0].mtu: Invalid value: 20"),
    "a network twice": (
        "PodRoute",
        {"routes": [{"destinations": ["10.2.0.0/16", "10.2.0.0/16"]}]},
        "spec.routes[0].destinations[1]: Duplicate value",
    ),
    "no such policy": (
        "PodRoute",
        {"routes": [ROUTE], "failurePolicy": "Maybe"},
        'spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"',
    ),
    "no such operator": (
        "PodMesh",
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}, "inbound": {"port": 1}},
        'spec.podSelector.matchExpressions[0].operator: Unsupported value: "Near"',
    ),
    "no label": (
        "PodMesh",
        {"podSelector": {"matchLabels": {"app": "not a label"}}, "inbound": {"port": 1}},
        "spec.podSelector.matchLabels.app: Invalid value",
    ),
    "no port": ("PodMesh", {"inbound": {}}, "spec.inbound.port: Required value"),
    "a port that there is not": ("PodMesh", {"inbound": {"port": 70000}}, "spec.inbound.port: Invalid value: 70000"),
    "root as the proxy": (
        "PodMesh",
        {"proxy": {"uid": 0}, "outbound": {"port": 1}},
        "spec.proxy.uid: Invalid value: 0: spec.proxy.uid in body should be greater than or equal to 1",
    ),
    "a user that is a name": (
        "PodMesh",
        {"proxy": {"uid": 1}, "outbound": {"port": 1, "excludeUIDs": ["root"]}},
        "spec.outbound.excludeUIDs[0]: Invalid value",
    ),
}
BAD_BY_RULE = {
    "bits beyond the prefix": (
        "PodRoute",
        {"routes": [{"destinations": ["10.20.0.1/16"]}]},
        f'spec.routes[0].destinations[0]: Invalid value: "10.20.0.1/16": {NETWORK}',
    ),
    "families mixed": (
        "PodRoute",
        {"routes": [{**SIX, "via": "10.1.0.2"}]},
        "spec.routes[0].via: Invalid value",
    ),
    "a small MTU for IPv6": ("PodRoute", {"routes": [{**SIX, "mtu": 1000}]}, "spec.routes[0].mtu: Invalid value"),
    "onLink without a gateway": ("PodRoute", {"routes": [{**SIX, "onLink": True}]}, "spec.routes[0].onLink"),
    "a loopback as the gateway": ("PodRoute", {"routes": [{**ROUTE, "via": "127.0.0.1"}]}, "spec.routes[0].via"),
    "sources of the main table": (
        "PodRoute",
        {"routes": [ROUTE], "sources": ["PodIPs"]},
        "spec.sources: Invalid value",
    ),
    "a mesh without direction": ("PodMesh", {"proxy": {"uid": 1}}, "inbound or outbound is required"),
    "a loop": ("PodMesh", {"outbound": {"port": 1}}, "the proxy's own connections would be led back to it"),
    "inbound to elsewhere": (
        "PodMesh",
        {"proxy": {"addresses": ["10.1.0.1"]}, "inbound": {"port": 1}},
        "spec.inbound: Invalid value",
    ),
    "two proxies": (
        "PodMesh",
        {"proxy": {"addresses": ["10.1.0.1", "10.1.0.2"]}, "outbound": {"port": 1}},
        "at most one of each IP family",
    ),
    "an operator without values": (
        "PodMesh",
        {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "inbound": {"port": 1}},
        "values are needed by In and NotIn",
    ),
}


async def refusal(api, kind, spec):
    with pytest.raises(ApiError) as caught:
        await api.create(resource(kind, spec))
    assert caught.value.code == 422
    return caught.value.message


@pytest.mark.parametrize(("kind", "spec", "words"), BAD_BY_SCHEMA.values(), ids=BAD_BY_SCHEMA)
async def test_the_schema_refuses(api, kind, spec, words):
    assert words in await refusal(api, kind, spec)


@pytest.mark.parametrize(("kind", "spec", "words"), BAD_BY_RULE.values(), ids=BAD_BY_RULE)
async def test_the_rules_refuse(api, kind, spec, words):
    assert words in await refusal(api, kind, spec)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [item[:2] for item in (BAD_BY_SCHEMA | BAD_BY_RULE).values()],
    ids=BAD_BY_SCHEMA | BAD_BY_RULE,
)
def test_resources_that_the_api_rejects_are_invalid(kind, spec):
    """One that comes from a server without these rules fails closed or open, as it says."""
    found = (routes if kind == "PodRoute" else mesh).read(resource(kind, spec))
    assert not isinstance(found, routes.PodRoute | mesh.PodMesh), found


async def test_a_status_is_written_apart_and_shown_in_columns(api):
    await api.create(resource("PodRoute", {"routes": [SIX]}))
    status = {
        "observedGeneration": 1,
        "pods": 3,
        "failed": 1,
        "nodes": [{"name": "n1", "pods": 3, "failures": [{"pod": "web", "reason": "Failed", "message": "no eth0"}]}],
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    kind = KINDS["PodRoute"]
    written = await api.patch(kind, "a", {"status": status}, "default", subresource="status")
    assert written["status"] == status
    path = f"/apis/{GROUP}/{VERSION}/namespaces/default/podroutes"
    table = yaml.safe_load(await api.raw(path, accept="application/json;as=Table;g=meta.k8s.io;v=v1"))
    columns = [definition["name"] for definition in table["columnDefinitions"]]
    shown = dict(zip(columns, table["rows"][0]["cells"], strict=True))
    assert {"Interface": "eth0", "Table": 254, "Pods": 3, "Failed": 1, "Ready": "False"}.items() <= shown.items()


def test_every_list_and_text_is_bounded():
    """Without bounds, an API server reckons the rules as too dear."""

    def unbounded(schema, path):
        if schema.get("type") == "array" and "maxItems" not in schema:
            yield path
        if schema.get("type") == "string" and not {"maxLength", "enum", "format"} & set(schema):
            yield path
        for name, each in schema.get("properties", {}).items():
            yield from unbounded(each, f"{path}.{name}")
        if "items" in schema:
            yield from unbounded(schema["items"], f"{path}[]")

    for crd in crds.ALL:
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert list(unbounded(spec, "spec")) == []


def bounds(schema):
    """All minima and maxima within a schema."""
    for key, value in schema.items():
        if key in ("minimum", "maximum") and not isinstance(value, dict):
            yield value
        elif isinstance(value, dict):
            yield from bounds(value)


def test_bounds_are_exact_as_float64():
    """kube-apiserver compares them as float64, and rejects all objects where that exceeds the format."""
    found = [bound for crd in crds.ALL for version in crd["spec"]["versions"] for bound in bounds(version["schema"])]
    assert found
    assert max(map(abs, found)) <= 2**53

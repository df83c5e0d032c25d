"""The definitions of admin policies in a real API server: what it takes, what it refuses, and with which words."""
# ruff: noqa: E501 - a table has a case in each line

import asyncio
import subprocess
import sys

import pytest

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.nriplugins.network import admin_crds
from podwire.nriplugins.network.kinds import ADMIN_KINDS
from podwire.nriplugins.network.policy.admin_policies import admin_policy_of
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError

MASTER = Certificate("admin", ("system:masters",))
ANY = {"namespaces": {}}
FULL = {
    "subject": {"pods": {"namespaceSelector": {"matchLabels": {"a": "b"}}, "podSelector": {}}},
    "ingress": [
        {
            "name": "in",
            "action": "Deny",
            "from": [ANY, {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}}],
            "ports": [{"portNumber": {"port": 80, "protocol": "TCP"}}, {"namedPort": "http"}],
        }
    ],
    "egress": [
        {
            "action": "Allow",
            "to": [{"nodes": {}}, {"networks": ["10.0.0.0/8", "fd00::/8"]}],
            "ports": [{"portRange": {"start": 1, "end": 9, "protocol": "UDP"}}],
        }
    ],
}


def policy(spec, kind="AdminNetworkPolicy", name="default"):
    api_version = f"{admin_crds.GROUP}/{admin_crds.VERSION}"
    own = {"priority": 5} if kind == "AdminNetworkPolicy" else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {**own, **spec}}


@pytest.fixture
async def api(tmp_path):
    options = Options(data_dir=tmp_path, port=0, store_url="memory://", controllers=frozenset())
    async with running(options) as server:
        client = Client(LoopbackHttp(server.assembled.server.handle, MASTER))
        client.learn(ADMIN_KINDS)
        for definition in admin_crds.ALL:
            await client.create(definition)
        for kind in ADMIN_KINDS:
            await _served(client, kind)
        yield client


async def _served(client, kind):
    async with asyncio.timeout(40):
        while True:
            try:
                return await client.list(kind)
            except ApiError as error:
                if error.code != 404:
                    raise
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", ADMIN_KINDS, ids=lambda kind: kind.kind)
async def test_valid_policies_are_accepted_and_parsed(api, kind):
    stored = await api.create(policy(FULL, kind.kind))
    assert {key: stored["spec"][key] for key in FULL} == FULL
    read = admin_policy_of(stored)
    assert (read.kind, read.problems) == (kind.kind, ())
    await api.delete(kind, "default")


async def test_missing_protocols_are_tcp(api):
    rule = {"action": "Deny", "from": [ANY], "ports": [{"portNumber": {"port": 80}}, {"portRange": {"start": 1, "end": 2}}]}  # fmt: skip
    stored = await api.create(policy({"subject": ANY, "ingress": [rule]}, name="short"))
    assert [next(iter(port.values()))["protocol"] for port in stored["spec"]["ingress"][0]["ports"]] == ["TCP"] * 2


def rules(**more):
    return {"subject": ANY, "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}], **more}]}


BAD = {
    "no subject": ({}, "AdminNetworkPolicy", "spec.subject: Required value"),
    "two subjects": ({"subject": {**ANY, "pods": FULL["subject"]["pods"]}}, "AdminNetworkPolicy", "spec.subject: Too many: 2"),
    "a priority that is too large": ({"subject": ANY, "priority": 1001}, "AdminNetworkPolicy", "spec.priority: Invalid value: 1001"),
    "an action": (rules(action="Audit"), "AdminNetworkPolicy", 'spec.egress[0].action: Unsupported value: "Audit"'),
    "pass of the baseline": (rules(action="Pass"), "BaselineAdminNetworkPolicy", 'spec.egress[0].action: Unsupported value: "Pass"'),
    "no peers": (rules(to=[]), "AdminNetworkPolicy", "spec.egress[0].to: Invalid value"),
    "an unknown peer": (rules(to=[{"domainNames": ["a.test"]}]), "AdminNetworkPolicy", "spec.egress[0].to[0]"),
    "not a network": (rules(to=[{"networks": ["there"]}]), "AdminNetworkPolicy", "Invalid CIDR format provided"),
    "named ports of networks": (rules(ports=[{"namedPort": "http"}]), "AdminNetworkPolicy", "networks and nodes have no named ports"),
    "a range backwards": (rules(ports=[{"portRange": {"start": 9, "end": 1}}]), "AdminNetworkPolicy", "start must not be greater than end"),
    "a port that is too large": (rules(ports=[{"portNumber": {"port": 65536}}]), "AdminNetworkPolicy", "ports[0].portNumber.port: Invalid value: 65536"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "kind", "words"), BAD.values(), ids=BAD)
async def test_invalid_policies_are_refused(api, spec, kind, words):
    with pytest.raises(ApiError) as refused:
        await api.create(policy(spec, kind))
    assert refused.value.code == 422
    assert words in str(refused.value)


async def test_there_is_one_baseline(api):
    with pytest.raises(ApiError, match=r'metadata\.name must be "default"'):
        await api.create(policy({"subject": ANY}, "BaselineAdminNetworkPolicy", "other"))


OWN_DEFINITIONS = """
import asyncio, sys
from pathlib import Path

from podwire.cluster.apiserver import Options, running
from podwire.cluster.loopback import LoopbackHttp
from podwire.nriplugins.network import admin_crds
from podwire.nriplugins.network.kinds import ADMIN_KINDS
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.k8sapi.status import ApiError
from tests.nriplugins.network.test_admin_crds import FULL, MASTER, _served, policy


async def main(data_dir):
    options = Options(data_dir=data_dir, port=0, controllers=frozenset(), definitions=admin_crds.ALL)
    async with running(options) as server:
        client = Client(LoopbackHttp(server.assembled.server.handle, MASTER))
        client.learn(ADMIN_KINDS)
        for kind in ADMIN_KINDS:
            await _served(client, kind)
        assert "cel_expr_python.cel" not in sys.modules
        if sys.argv[2] == "first":
            return
        try:
            await client.create(policy(FULL, "BaselineAdminNetworkPolicy", name="other"))
        except ApiError as error:
            print(error.message)


asyncio.run(main(Path(sys.argv[1])))
"""


def test_definitions_of_the_cluster_are_served_without_loading_the_cel_library_before_an_object_needs_it(tmp_path):
    for start in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-c", OWN_DEFINITIONS, str(tmp_path), start], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert 'metadata.name must be "default"' in done.stdout

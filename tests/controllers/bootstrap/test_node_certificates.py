"""Certificates that nodes request: approved for their own names only."""

import base64

import pytest

from podwire.apiserver.identity.pki import Pki
from podwire.apiserver.identity.request_signing import RequestSigner
from podwire.cluster.join import certificates
from podwire.cluster.join.certificates import NotSigned, Subject, component, kubelet, request_certificate, serving
from podwire.controllers.bootstrap.node_certificates import may_serve
from podwire.controllers.kinds import NODES, SIGNING_REQUESTS


def node(name, *addresses):
    rows = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": rows}}


@pytest.mark.parametrize(
    ("names", "may"),
    [
        (["n1", "192.0.2.1"], True),
        (["192.0.2.1"], True),
        ([], False),
        (["n1", "192.0.2.9"], False),
        (["n2"], False),
        (["n1", "192.0.2.3"], False),
        (["kubernetes.default"], False),
    ],
)
def test_a_node_serves_its_own_names_only(names, may):
    own, other = node("n1", "192.0.2.1", "192.0.2.3"), node("n2", "192.0.2.2", "192.0.2.3")
    assert may_serve(names, own, [other]) is may


@pytest.fixture
async def as_node(cluster):
    """A client with the identity of the node n1, whose Node exists."""
    await cluster.api.create(node("n1"))
    await cluster.api.patch(NODES, "n1", {"status": node("n1", "192.0.2.1")["status"]}, subresource="status")
    return cluster.client_of("system:node:n1", "system:nodes")


@pytest.mark.parametrize(
    "subject",
    [serving("n1", ["192.0.2.1"]), component("nri-network", "n1"), component("local-path", "n1"), certificates.PROXY],
    ids=lambda subject: subject.user,
)
async def test_a_node_gets_certificates_of_its_own(as_node, cluster, subject):
    issued = await request_certificate(as_node, subject)
    issued.parsed.verify_directly_issued_by(cluster.authority)
    assert f"CN={subject.user}" in issued.parsed.subject.rfc4514_string()


@pytest.mark.parametrize(
    "subject",
    [
        serving("n1", ["192.0.2.66"]),
        component("nri-network", "n2"),
        component("controllers", "n1"),
        Subject(signer=certificates.NODE_COMPONENT, user="system:kube-proxy", groups=("system:masters",)),
        Subject(signer=certificates.NODE_COMPONENT, user="admin"),
    ],
    ids=lambda subject: f"{subject.user}-{'-'.join(subject.groups)}",
)
async def test_a_node_gets_no_certificate_of_others(as_node, cluster, subject):
    with pytest.raises(NotSigned, match="nobody signed"):
        await request_certificate(as_node, subject, seconds=0.4)
    (request,) = (await cluster.api.list(SIGNING_REQUESTS)).items
    assert "status" not in request or not request["status"].get("conditions")


async def test_others_get_no_certificate_of_a_node(as_node, cluster):
    with pytest.raises(NotSigned, match="nobody signed"):
        await request_certificate(cluster.api, component("nri-network", "n1"), seconds=0.4)


def test_a_component_is_signed_by_its_own_subject_only(cluster_signer):
    for subject in (kubelet("n1"), component("dns", "n1"), Subject(signer="", user="system:podwire:nri-network:")):
        request, _ = certificates.signing_request(subject)
        with pytest.raises(ValueError, match="is not that of a component"):
            cluster_signer.sign(certificates.NODE_COMPONENT, request, ["client auth"], None)


@pytest.fixture
def cluster_signer(tmp_path):
    return RequestSigner(Pki.open(tmp_path / "pki", names=[], ips=[]))


def test_a_denied_request_says_why():
    row = {"type": "Denied", "message": "not today"}
    with pytest.raises(NotSigned, match="was denied: not today"):
        certificates.outcome({"metadata": {"name": "r"}, "status": {"conditions": [row]}})
    assert certificates.outcome({"metadata": {"name": "r"}}) is None
    done = {"metadata": {"name": "r"}, "status": {"certificate": base64.b64encode(b"PEM").decode()}}
    assert certificates.outcome(done) == "PEM"

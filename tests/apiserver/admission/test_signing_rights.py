"""Authorization to approve and sign certificate requests, and requests that nobody may make."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import answer_when

GROUP = "certificates.k8s.io"
REQUESTS = f"/apis/{GROUP}/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BOB = Certificate("bob")
PARTS = ("approval", "status")
APPROVED = {"type": "Approved", "status": "True", "reason": "Because"}


def request_of(*organizations, signer="example.com/signer", name="r"):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
        x509.NameAttribute(NameOID.COMMON_NAME, "jane"),
    ]
    builder = x509.CertificateSigningRequestBuilder(x509.Name(subject))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {"signerName": signer, "usages": ["client auth"], "request": base64.b64encode(pem).decode()}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def bob(api):
    """Lets bob write all parts of requests, and gives him these verbs on signers; returns when the server knows it."""

    async def give(**verbs_on_signers):
        parts = [f"certificatesigningrequests/{part}" for part in PARTS]
        rules = [
            {"verbs": ["get"], "nonResourceURLs": ["/ready"]},
            {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["certificatesigningrequests", *parts]},
        ]
        for verb, signer in verbs_on_signers.items():
            signers = {"apiGroups": [GROUP], "resources": ["signers"], "resourceNames": [signer]}
            rules.append({"verbs": [verb], **signers})
        await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": "bobs"}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bobs"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]
        binding = {"metadata": {"name": "bobs"}, "roleRef": reference, "subjects": subjects}
        await api.made(f"{RBAC}/clusterrolebindings", binding)
        await answer_when(lambda: api.get("/ready", user=BOB), lambda reply: reply.status == 404)
        await api.made(REQUESTS, request_of())

    return give


@pytest.mark.parametrize(
    ("signer", "code"), [("example.com/signer", 200), ("example.com/*", 200), ("other.com/*", 403)]
)
async def test_approving_needs_the_right_on_the_signer(api, bob, signer, code):
    await bob(approve=signer)

    reply = await api.patch(f"{REQUESTS}/r/approval", {"status": {"conditions": [APPROVED]}}, user=BOB)

    assert reply.status == code, reply.raw
    if code == 403:
        assert reply.message.endswith('user not permitted to approve requests with signerName "example.com/signer"')


async def test_signing_needs_its_own_right(api, bob):
    await bob(approve="example.com/signer")
    failed = {"type": "Failed", "status": "True", "reason": "No"}

    reply = await api.patch(f"{REQUESTS}/r/status", {"status": {"conditions": [failed]}}, user=BOB)

    assert reply.status == 403
    assert reply.message.endswith('user not permitted to sign requests with signerName "example.com/signer"')


async def test_a_signer_with_the_right_signs(api, bob):
    await bob(sign="example.com/*")
    failed = {"type": "Failed", "status": "True", "reason": "No"}

    assert (await api.patch(f"{REQUESTS}/r/status", {"status": {"conditions": [failed]}}, user=BOB)).status == 200


async def test_nobody_requests_a_certificate_of_system_masters(api):
    signer = "kubernetes.io/kube-apiserver-client"

    refused = await api.post(REQUESTS, request_of("devs", "system:masters", signer=signer))
    garbage = request_of(signer=signer)
    garbage["spec"]["request"] = "AAAA"
    unreadable = await api.post(REQUESTS, garbage)

    assert refused.status == unreadable.status == 403
    assert refused.message.endswith(f"use of {signer} signer with system:masters group is not allowed")
    assert "failed to parse CSR" in unreadable.message
    assert (await api.post(REQUESTS, request_of("devs", signer=signer))).status == 201

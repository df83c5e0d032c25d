"""CertificateSigningRequests on a real API server: approved, signed, refused, removed."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podwire.controllers.certificates import requests
from podwire.controllers.kinds import SIGNING_REQUESTS
from podwire.objects.times import parse
from tests.eventually import eventually_async

CLIENT_USAGES = ["digital signature", "key encipherment", "client auth"]


def pem(common_name, *organizations, dns=()):
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if dns:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in dns]), critical=False
        )
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def request(name, content, signer="kube-apiserver-client", usages=CLIENT_USAGES, **spec):
    given = {"request": base64.b64encode(content).decode(), "signerName": f"kubernetes.io/{signer}", "usages": usages}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {**given, **spec},
    }


async def approve(cluster, name):
    found = await cluster.api.get(SIGNING_REQUESTS, name)
    row = {"type": "Approved", "status": "True", "reason": "ByHand", "message": "yes"}
    await cluster.api.replace({**found, "status": {"conditions": [row]}}, subresource="approval")


async def certificate(cluster, name):
    async def look():
        status = (await cluster.api.get(SIGNING_REQUESTS, name)).get("status") or {}
        return status.get("certificate")

    return x509.load_pem_x509_certificate(base64.b64decode(await eventually_async(look)))


async def test_an_approved_request_is_signed_by_the_authority_for_the_time_that_it_asks_for(cluster):
    await cluster.api.create(request("ann", pem("ann", "writers"), expirationSeconds=3600))
    assert not ((await cluster.api.get(SIGNING_REQUESTS, "ann")).get("status") or {}).get("certificate")
    await approve(cluster, "ann")
    made = await certificate(cluster, "ann")
    made.verify_directly_issued_by(cluster.authority)
    assert made.subject.rfc4514_string() == "O=writers,CN=ann"
    assert (made.not_valid_after_utc - made.not_valid_before_utc).total_seconds() == 3600 + 300
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False


@pytest.mark.parametrize(
    ("signer", "content", "usages", "why"),
    [
        ("kube-apiserver-client", pem("ann"), ["server auth"], "invalid usage for client certificate: server auth"),
        (
            "kube-apiserver-client-kubelet",
            pem("system:node:n1", "writers"),
            CLIENT_USAGES,
            "subject organization is not system:nodes",
        ),
        (
            "kube-apiserver-client-kubelet",
            pem("system:node:n1", "system:nodes", dns=["n1"]),
            CLIENT_USAGES,
            "DNS subjectAltNames are not allowed",
        ),
        (
            "kubelet-serving",
            pem("system:node:n1", "system:nodes"),
            ["digital signature", "key encipherment", "server auth"],
            "DNS or IP subjectAltName is required",
        ),
    ],
)
async def test_a_request_against_the_rules_of_its_signer_fails(cluster, signer, content, usages, why):
    await cluster.api.create(request("bad", content, signer, usages))
    await approve(cluster, "bad")

    async def failed():
        rows = ((await cluster.api.get(SIGNING_REQUESTS, "bad")).get("status") or {}).get("conditions") or ()
        return [(row["reason"], row["message"]) for row in rows if row["type"] == "Failed"]

    assert await eventually_async(failed) == [("SignerValidationFailure", why)]


async def test_a_request_for_a_kubelet_is_approved_and_signed_by_itself(cluster):
    content = pem("system:node:n1", "system:nodes")
    await cluster.api.create(request("n1", content, "kube-apiserver-client-kubelet"))
    made = await certificate(cluster, "n1")
    assert "CN=system:node:n1" in made.subject.rfc4514_string()
    rows = (await cluster.api.get(SIGNING_REQUESTS, "n1"))["status"]["conditions"]
    assert [row["message"] for row in rows] == ["Auto approving kubelet client certificate after SubjectAccessReview."]


async def test_a_certificate_for_one_purpose_alone_allows_every_use_of_its_key(cluster):
    await cluster.api.create(request("ann", pem("ann"), usages=["client auth"]))
    await approve(cluster, "ann")
    made = await certificate(cluster, "ann")
    with pytest.raises(x509.ExtensionNotFound):
        made.extensions.get_extension_for_class(x509.KeyUsage)


async def test_other_signers_and_requests_that_nobody_approved_are_left_alone(cluster):
    await cluster.api.create(request("other", pem("ann"), usages=["client auth"], signerName="example.com/signer"))
    await cluster.api.create(request("waiting", pem("ann")))
    await approve(cluster, "other")
    await cluster.api.create(request("ann", pem("ann")))
    await approve(cluster, "ann")
    await certificate(cluster, "ann")
    for name in ("other", "waiting"):
        assert "certificate" not in ((await cluster.api.get(SIGNING_REQUESTS, name)).get("status") or {})


@pytest.mark.parametrize(
    ("status", "hours"),
    [
        ({}, 24),
        ({"conditions": [{"type": "Denied", "lastUpdateTime": "2027-01-01T02:00:00Z"}]}, 3),
        ({"conditions": [{"type": "Approved", "lastUpdateTime": "2027-01-01T02:00:00Z"}]}, 26),
        ({"conditions": [{"type": "Approved", "lastUpdateTime": "2027-01-01T02:00:00Z"}], "certificate": "x"}, 3),
    ],
)
def test_requests_go_an_hour_after_they_were_handled_or_after_a_day(status, hours):
    created = "2027-01-01T00:00:00Z"
    end = requests.expires_at({"metadata": {"creationTimestamp": created}, "status": status})
    assert end - parse(created) == hours * 3600

"""Doors that the generic verbs answer: finalize and approval."""

import base64

import pytest

from podwire.apiserver import subresources
from podwire.apiserver.request.verbs import get, patch, update

NAMESPACES = "/api/v1/namespaces"
SIGNING = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

PEM = b"-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"


@pytest.mark.parametrize(("verb", "function"), [("get", get), ("update", update), ("patch", patch), ("create", None)])
def test_a_status_is_the_generic_verbs(verb, function):
    assert subresources.find("status", verb) is function


def test_an_unknown_subresource_is_not_found():
    assert subresources.find("nonsense", "get") is None


async def test_finalizing_a_living_namespace_changes_its_finalizers_only(api):
    made = await api.made(NAMESPACES, {"metadata": {"name": "team"}})
    given = {**made, "metadata": {**made["metadata"], "labels": {"a": "b"}}, "spec": {"finalizers": []}}

    reply = await api.put(f"{NAMESPACES}/team/finalize", given)

    assert reply.status == 200
    assert "finalizers" not in reply.body["spec"]
    assert "a" not in reply.body["metadata"]["labels"]
    assert (await api.get(f"{NAMESPACES}/team")).status == 200


async def test_a_namespaces_finalizers_are_not_changed_by_a_plain_update(api):
    made = await api.made(NAMESPACES, {"metadata": {"name": "team"}})

    await api.put(f"{NAMESPACES}/team", {**made, "spec": {"finalizers": []}})

    assert (await api.get(f"{NAMESPACES}/team")).body["spec"]["finalizers"] == ["kubernetes"]


async def test_a_namespace_with_metadata_finalizers_stays_after_it_is_finalized(api):
    await api.made(NAMESPACES, {"metadata": {"name": "team", "finalizers": ["example.com/a"]}})
    gone = (await api.delete(f"{NAMESPACES}/team")).body
    await api.put(f"{NAMESPACES}/team/finalize", {**gone, "spec": {"finalizers": []}})
    assert (await api.get(f"{NAMESPACES}/team")).status == 200

    await api.patch(f"{NAMESPACES}/team", {"metadata": {"finalizers": None}})

    assert (await api.get(f"{NAMESPACES}/team")).status == 404


async def test_a_finalize_of_a_stale_version_is_a_conflict(api):
    made = await api.made(NAMESPACES, {"metadata": {"name": "team"}})
    await api.patch(f"{NAMESPACES}/team", {"metadata": {"labels": {"a": "b"}}})

    assert (await api.put(f"{NAMESPACES}/team/finalize", made)).status == 409


async def test_an_approval_needs_its_own_subresource(api):
    spec = {
        "request": base64.b64encode(PEM).decode(),
        "signerName": "example.com/signer",
        "usages": ["client auth"],
    }
    made = await api.post(SIGNING, {"metadata": {"name": "r"}, "spec": spec})
    assert made.status == 201, made.raw
    approved = {"type": "Approved", "status": "True", "reason": "Fine", "message": "looks good"}

    reply = await api.put(f"{SIGNING}/r/approval", {**made.body, "status": {"conditions": [approved]}})

    assert reply.status == 200
    assert reply.body["status"]["conditions"][0]["type"] == "Approved"
    assert reply.body["spec"]["username"] == "kubernetes-admin"
    assert (await api.get(f"{SIGNING}?fieldSelector=spec.signerName%3Dexample.com/signer")).names == ["r"]

"""What would have to be executed and is not: refused, never stored in silence; what is there already can go."""

import msgspec
import pytest

GROUP = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "mutatingadmissionpolicies": ("MutatingAdmissionPolicy", "spec.mutations"),
    "mutatingadmissionpolicybindings": ("MutatingAdmissionPolicyBinding", "spec.policyName"),
}


@pytest.mark.parametrize("resource", KINDS)
async def test_it_cannot_be_created(api, resource):
    _, field = KINDS[resource]
    for url in (f"{GROUP}/{resource}", f"{GROUP}/{resource}?dryRun=All"):
        reply = await api.post(url, {"metadata": {"name": "x"}, "spec": {}})
        assert (reply.status, reply.body["reason"]) == (422, "Invalid")
        assert f"{field}: Forbidden" in reply.message
        assert "not executed by this API server" in reply.message
    assert (await api.get(f"{GROUP}/{resource}")).names == []


@pytest.mark.parametrize("resource", KINDS)
async def test_stored_objects_can_be_read_and_deleted_but_not_changed(api, resource):
    kind, field = KINDS[resource]
    metadata = {"name": "x", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["example.com/f"]}
    stored = {"kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "metadata": metadata}
    await api.store.create(f"/registry/{resource}/x", msgspec.json.encode({**stored, "spec": {}}))
    one = f"{GROUP}/{resource}/x"

    assert (await api.get(f"{GROUP}/{resource}")).names == ["x"]
    changed = await api.patch(one, {"metadata": {"labels": {"a": "b"}}})
    assert (changed.status, f"{field}: Forbidden" in changed.message) == (422, True)
    assert (await api.delete(one)).status == 200
    assert (await api.patch(one, {"metadata": {"finalizers": None}})).status == 200
    assert (await api.get(one)).status == 404

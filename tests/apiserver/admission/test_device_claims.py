"""Claims for devices on their way in: admin access, and what is forgotten with a device."""

import pytest

NAMESPACES = "/api/v1/namespaces"
LABEL = {"resource.kubernetes.io/admin-access": "true"}
WHY = (
    "Forbidden: admin access to devices requires the "
    "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
)


def urls(version, resource):
    return f"/apis/resource.k8s.io/{version}/namespaces/team/{resource}"


def spec(version, *, admin):
    wanted = {"deviceClassName": "nics", "adminAccess": admin}
    request = {"name": "nic", **wanted} if version == "v1beta1" else {"name": "nic", "exactly": wanted}
    return {"devices": {"requests": [request]}}


def body(version, resource, *, admin=True):
    wanted = spec(version, admin=admin)
    return {"metadata": {"name": "c"}, "spec": {"spec": wanted} if resource == "resourceclaimtemplates" else wanted}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(
    ("resource", "field"),
    [
        ("resourceclaims", "spec.devices.requests[0].exactly.adminAccess"),
        ("resourceclaimtemplates", "spec.spec.devices.requests[0].exactly.adminAccess"),
    ],
)
async def test_admin_access_is_for_marked_namespaces(api, version, resource, field):
    await api.made(NAMESPACES, {"metadata": {"name": "team"}})

    refused = await api.post(urls(version, resource), body(version, resource))
    assert refused.status == 422
    assert f"{field}: {WHY}" in refused.message

    await api.made(urls(version, resource), body(version, resource, admin=False))
    await api.delete(f"{urls(version, resource)}/c")
    await api.patch(f"{NAMESPACES}/team", {"metadata": {"labels": LABEL}})
    await api.made(urls(version, resource), body(version, resource))


RESULT = {"request": "nic", "driver": "net.example", "pool": "n1", "device": "eth0"}
CLAIM = urls("v1", "resourceclaims")


@pytest.fixture
async def claimed(api):
    await api.made(NAMESPACES, {"metadata": {"name": "team"}})
    await api.made(CLAIM, body("v1", "resourceclaims", admin=False))
    return api


async def test_nor_is_it_granted_elsewhere(claimed):
    granted = {"allocation": {"devices": {"results": [{**RESULT, "adminAccess": True}]}}}

    reply = await claimed.patch(f"{CLAIM}/c/status", {"status": granted})

    assert f"status.allocation.devices.results[0].adminAccess: {WHY}" in reply.message
    await claimed.patch(f"{NAMESPACES}/team", {"metadata": {"labels": LABEL}})
    assert (await claimed.patch(f"{CLAIM}/c/status", {"status": granted})).status == 200


async def test_device_status_is_removed_with_its_allocation(claimed):
    document = {"driver": "net.example", "pool": "n1", "device": "eth0", "networkData": {"interfaceName": "net1"}}
    await claimed.patch(f"{CLAIM}/c/status", {"status": {"allocation": {"devices": {"results": [RESULT]}}}})
    reply = await claimed.patch(f"{CLAIM}/c/status", {"status": {"devices": [document]}})
    assert reply.body["status"]["devices"][0]["networkData"] == {"interfaceName": "net1"}

    reply = await claimed.patch(f"{CLAIM}/c/status", {"status": {"allocation": None}})

    assert (reply.status, reply.body["status"]) == (200, {})


async def test_an_allocation_is_immutable(claimed):
    await claimed.patch(f"{CLAIM}/c/status", {"status": {"allocation": {"devices": {"results": [RESULT]}}}})
    other = {"allocation": {"devices": {"results": [{**RESULT, "device": "eth1"}]}}}

    reply = await claimed.patch(f"{CLAIM}/c/status", {"status": other})

    assert reply.status == 422
    assert "status.allocation: Invalid value" in reply.message
    assert "field is immutable" in reply.message


async def test_a_claims_spec_is_immutable(claimed):
    reply = await claimed.patch(f"{CLAIM}/c", {"spec": {"devices": {"requests": []}}})

    assert reply.status == 422
    assert "spec: Invalid value" in reply.message

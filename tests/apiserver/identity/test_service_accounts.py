"""Whether what a token stands for is still there."""

import pytest

from podwire.apiserver.identity.service_accounts import StoredServiceAccounts

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.mark.parametrize("uid", ["its own", "another"])
async def test_an_account_is_there_with_its_own_uid_only(api, uid):
    made = (await api.get(f"{ACCOUNTS}/default")).body
    asked = made["metadata"]["uid"] if uid == "its own" else "another"

    assert await StoredServiceAccounts(api.store, api.clock).exists("default", "default", asked) is (uid == "its own")


async def test_an_account_that_is_gone_is_not_there(api):
    uid = (await api.get(f"{ACCOUNTS}/default")).body["metadata"]["uid"]

    await api.delete(f"{ACCOUNTS}/default")

    assert not await StoredServiceAccounts(api.store, api.clock).exists("default", "default", uid)


async def test_an_account_of_another_namespace_is_another(api):
    uid = (await api.get(f"{ACCOUNTS}/default")).body["metadata"]["uid"]

    assert not await StoredServiceAccounts(api.store, api.clock).exists("kube-system", "default", uid)


@pytest.mark.parametrize(
    ("kind", "namespace", "url", "body"),
    [
        ("Node", "", "/api/v1/nodes", {"metadata": {"name": "x"}}),
        ("Secret", "default", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "x"}}),
        (
            "Pod",
            "default",
            "/api/v1/namespaces/default/pods",
            {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        ),
    ],
    ids=["node", "secret", "pod"],
)
async def test_a_bound_object_exists_until_it_is_deleted(api, kind, namespace, url, body):
    accounts = StoredServiceAccounts(api.store, api.clock)
    uid = (await api.made(url, body))["metadata"]["uid"]

    assert await accounts.bound_exists(kind, namespace, "x", uid)
    assert not await accounts.bound_exists(kind, namespace, "x", "another")
    await api.delete(f"{url}/x")
    assert not await accounts.bound_exists(kind, namespace, "x", uid)


@pytest.mark.parametrize(
    ("kind", "url", "spec"),
    [
        ("Pod", "/api/v1/namespaces/default/pods", {"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        ("Secret", "/api/v1/namespaces/default/secrets", {}),
    ],
    ids=["pod", "secret"],
)
async def test_an_object_whose_deletion_never_ends_counts_for_one_more_minute(api, kind, url, spec):
    accounts = StoredServiceAccounts(api.store, api.clock)
    uid = (await api.made(url, {"metadata": {"name": "x", "finalizers": ["a/b"]}, **spec}))["metadata"]["uid"]

    await api.delete(f"{url}/x", {"gracePeriodSeconds": 0})
    assert await accounts.bound_exists(kind, "default", "x", uid)
    api.clock.move(59)
    assert await accounts.bound_exists(kind, "default", "x", uid)
    api.clock.move(2)
    assert not await accounts.bound_exists(kind, "default", "x", uid)

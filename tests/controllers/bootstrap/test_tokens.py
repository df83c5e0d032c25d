"""Bootstrap tokens on a real API server: they authenticate, sign cluster-info, and end."""

import time

import pytest

from podwire.cluster.join import permissions
from podwire.controllers.kinds import CONFIG_MAPS, SECRETS
from podwire.protocols.k8sapi.bootstrap_tokens import (
    NODES_GROUP,
    BadToken,
    Token,
    TokenRecord,
    secret_of,
    verified_kubeconfig,
)
from podwire.protocols.k8sapi.status import ApiError
from tests.eventually import eventually_async

TOKEN = Token("abcdef", "0123456789abcdef")


async def user_of(cluster, token):
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await cluster.api.create(review))["status"]
    return status["user"] if status.get("authenticated") else None


async def info(cluster):
    return (await cluster.api.get(CONFIG_MAPS, "cluster-info", "kube-public"))["data"]


async def signed_content(cluster):
    """Returns the kubeconfig of cluster-info; empty while its signature is not that of the token."""
    try:
        return verified_kubeconfig(await info(cluster), TOKEN)
    except BadToken:
        return ""


async def test_a_token_is_a_user_in_its_groups_until_its_secret_is_deleted(cluster):
    await cluster.api.create(secret_of(TokenRecord(token=TOKEN)))
    user = await user_of(cluster, str(TOKEN))
    assert user["username"] == "system:bootstrap:abcdef"
    assert user["groups"] == ["system:bootstrappers", NODES_GROUP, "system:authenticated"]
    assert await user_of(cluster, "abcdef.fedcba9876543210") is None
    assert await user_of(cluster, "zzzzzz.0123456789abcdef") is None
    await cluster.api.delete(SECRETS, TOKEN.secret_name, "kube-system")
    assert await user_of(cluster, str(TOKEN)) is None


@pytest.mark.parametrize("change", [{"expires": time.time() - 5}, {"usages": ("signing",)}], ids=["expired", "usage"])
async def test_a_token_that_is_not_for_authentication_is_refused(cluster, change):
    await cluster.api.create(secret_of(TokenRecord(token=TOKEN, **change)))
    assert await user_of(cluster, str(TOKEN)) is None


async def test_cluster_info_is_signed_with_each_token_while_it_exists(cluster):
    await cluster.api.create(secret_of(TokenRecord(token=TOKEN)))
    await permissions.ensure(cluster.api, "https://192.0.2.1:6443", "CA")

    async def look():
        return await signed_content(cluster)

    assert "192.0.2.1" in await eventually_async(look)
    await permissions.ensure(cluster.api, "https://192.0.2.2:6443", "CA")

    async def moved():
        return "192.0.2.2" in await signed_content(cluster)

    await eventually_async(moved)
    await cluster.api.delete(SECRETS, TOKEN.secret_name, "kube-system")

    async def gone():
        return list(await info(cluster)) == ["kubeconfig"]

    await eventually_async(gone)


async def test_an_expired_token_is_deleted(cluster, clock):
    await cluster.api.create(secret_of(TokenRecord(token=TOKEN, expires=time.time() + 1.0)))

    async def gone():
        try:
            await cluster.api.get(SECRETS, TOKEN.secret_name, "kube-system")
        except ApiError as error:
            return error.code == 404
        return False

    await eventually_async(gone)

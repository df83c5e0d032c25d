"""Secrets with the tokens of service accounts, on a real API server."""

import base64

import msgspec
import pytest

from podwire.controllers.account_tokens import ACCOUNT_UID, TYPE, missing_data, names_account
from podwire.controllers.kinds import SECRETS, SERVICE_ACCOUNTS
from podwire.controllers.metadata import ACCOUNT_NAME, from_json, from_object
from tests.eventually import eventually_async


def secret(name="robot-token", account="robot", **annotations):
    metadata = {"name": name, "namespace": "default", "annotations": {ACCOUNT_NAME: account, **annotations}}
    return {"apiVersion": "v1", "kind": "Secret", "type": TYPE, "metadata": metadata}


def account(name="robot"):
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}


async def filled(cluster, name="robot-token"):
    async def look():
        found = await cluster.api.get(SECRETS, name, "default")
        return found if "token" in (found.get("data") or {}) else None

    return await eventually_async(look)


def text(found, key):
    return base64.b64decode(found["data"][key]).decode()


async def user_of(cluster, token):
    """Returns the name by which the API server knows the bearer of a token."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await cluster.api.create(review))["status"]
    return status["user"]["username"] if status.get("authenticated") else None


async def test_a_secret_gets_token_root_certificate_and_namespace(cluster):
    robot = await cluster.api.create(account())
    await cluster.api.create(secret())
    found = await filled(cluster)
    assert (text(found, "ca.crt"), text(found, "namespace")) == ("PEM", "default")
    assert found["metadata"]["annotations"][ACCOUNT_UID] == robot["metadata"]["uid"]
    assert await user_of(cluster, text(found, "token")) == "system:serviceaccount:default:robot"


async def test_a_token_is_refused_when_its_secret_is_gone(cluster):
    await cluster.api.create(account())
    await cluster.api.create(secret())
    token = text(await filled(cluster), "token")
    assert await user_of(cluster, token)
    await cluster.api.delete(SECRETS, "robot-token", "default")
    assert await user_of(cluster, token) is None


async def test_a_token_that_its_secret_does_not_contain_is_refused(cluster):
    await cluster.api.create(account())
    await cluster.api.create(secret())
    found = await filled(cluster)
    token = text(found, "token")
    label = {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}
    await cluster.api.patch(SECRETS, "robot-token", {"metadata": {"labels": label}}, "default")
    assert await user_of(cluster, token) is None
    await cluster.api.patch(SECRETS, "robot-token", {"metadata": {"labels": dict.fromkeys(label)}}, "default")
    assert await user_of(cluster, token)
    other = base64.b64encode(b"other").decode()
    await cluster.api.patch(SECRETS, "robot-token", {"data": {"token": other}}, "default")
    assert await user_of(cluster, token) is None


async def test_a_removed_token_is_made_anew(cluster):
    await cluster.api.create(account())
    await cluster.api.create(secret())
    await filled(cluster)
    await cluster.api.patch(SECRETS, "robot-token", {"data": None}, "default")
    assert await user_of(cluster, text(await filled(cluster), "token"))


async def test_secrets_are_deleted_with_their_account(cluster):
    await cluster.api.create(account())
    await cluster.api.create(secret())
    token = text(await filled(cluster), "token")
    await cluster.api.delete(SERVICE_ACCOUNTS, "robot", "default")
    await cluster.gone(SECRETS, "robot-token")
    assert await user_of(cluster, token) is None


@pytest.mark.parametrize("annotations", [{}, {ACCOUNT_UID: "another"}], ids=["no account", "another uid"])
async def test_a_secret_of_an_account_that_does_not_exist_is_deleted(cluster, annotations):
    if annotations:
        await cluster.api.create(account())
    await cluster.api.create(secret(**annotations))
    await cluster.gone(SECRETS, "robot-token")


async def test_a_secret_of_another_type_stays_as_it_is(cluster):
    opaque = {**secret("opaque", account="nobody"), "type": "Opaque"}
    made = await cluster.api.create(opaque)
    await cluster.api.create(account())
    await cluster.api.create(secret())
    await filled(cluster)
    assert (await cluster.api.get(SECRETS, "opaque", "default")) == made


def test_a_secret_without_an_account_of_its_uid_has_none():
    made = {"metadata": {"uid": "1"}}
    assert names_account(secret(), made)
    assert names_account(secret(**{ACCOUNT_UID: "1"}), made)
    assert not names_account(secret(**{ACCOUNT_UID: "2"}), made)
    assert not names_account(secret(), None)


def test_only_what_is_missing_is_written():
    whole = {"ca.crt": base64.b64encode(b"PEM").decode(), "namespace": "ZGVmYXVsdA==", "token": "eA=="}
    assert missing_data({"data": whole}, "PEM") == set()
    assert missing_data({"data": whole}, "NEW") == {"ca.crt"}
    assert missing_data({"data": {**whole, "ca.crt": ""}}, "") == set()
    assert missing_data({}, "PEM") == {"ca.crt", "namespace", "token"}


@pytest.mark.parametrize("read", [from_object, lambda kind, made: from_json(kind, _json(made))], ids=["object", "json"])
def test_the_account_of_a_secret_is_kept(read):
    assert read(SECRETS, secret()).account == "robot"
    bare = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "annotations": None}}
    assert read(SECRETS, bare).account == ""
    assert type(read(SECRETS, secret()).metadata).__name__ == "Metadata"


def _json(made):
    return msgspec.json.encode(made)

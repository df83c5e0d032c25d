"""The one function from a request to its answer: who, what, may they, how many, and errors as Status."""

import asyncio
import logging

import pytest

from podwire.apiserver.identity.users import User
from podwire.apiserver.limits import Limits
from podwire.protocols.k8sapi.server_side import Certificate
from podwire.protocols.storage import StorageError, StoreFull, StoreUnavailable, TooLarge
from podwire.store.memory import MemoryStore

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class HeldStore(MemoryStore):
    """Answers no get until it is let go."""

    def __init__(self):
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()

    async def get(self, key):
        await self.free.wait()
        return await super().get(key)

    async def create(self, key, value):
        await self.free.wait()
        return await super().create(key, value)


class FailingStore(MemoryStore):
    """Raises `error` instead of writing, or of reading, once that is set."""

    error = None
    on = ("create", "update", "delete")

    def fail(self, what):
        if self.error is not None and what in self.on:
            raise self.error

    async def get(self, key):
        self.fail("get")
        return await super().get(key)

    async def list(self, prefix, **options):
        self.fail("list")
        return await super().list(prefix, **options)

    async def create(self, key, value):
        self.fail("create")
        return await super().create(key, value)

    async def update(self, key, value, *, expected):
        self.fail("update")
        return await super().update(key, value, expected=expected)

    async def delete(self, key, *, expected):
        self.fail("delete")
        return await super().delete(key, expected=expected)


# --- what is not there ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("/apis/nobody.example.com/v1/things", id="group"),
        pytest.param("/api/v2/pods", id="core version"),
        pytest.param("/apis/nobody.example.com/v1/namespaces/default/things/a", id="object of a group"),
    ],
)
async def test_a_group_that_is_not_there_is_a_bare_page(api, url):
    reply = await api.get(url)

    assert (reply.status, reply.body) == (404, "404 page not found\n")
    assert reply.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("/api/v1/things", id="resource"),
        pytest.param("/apis/apps/v1/namespaces/default/pods", id="a resource of another group"),
        pytest.param(f"{PODS}/web/things", id="subresource"),
        pytest.param(f"{CONFIGS}/one/status", id="a status that the kind has not"),
        pytest.param("/api/v1/namespaces/default/nodes", id="a cluster-wide resource in a namespace"),
        pytest.param("/api/v1/namespaces/n1/nodes/n1", id="a cluster-wide object in a namespace of its name"),
        pytest.param("/api/v1/configmaps/one", id="a namespaced object without its namespace"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_resource_that_is_not_there_is_a_status(api, method, url):
    await api.made("/api/v1/nodes", {"metadata": {"name": "n1"}})

    reply = await api.call(method, url)

    assert (reply.status, reply.body["kind"]) == (404, "Status")
    assert reply.message == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("PUT", CONFIGS),
        ("PATCH", CONFIGS),
        ("POST", f"{CONFIGS}/one"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("HEAD", CONFIGS),
        ("OPTIONS", CONFIGS),
        ("BREW", CONFIGS),
        ("DELETE", f"{PODS}/web/status"),
        ("POST", f"{PODS}/web/status"),
        ("GET", f"{PODS}/web/binding"),
        ("GET", f"{PODS}/web/eviction"),
        ("PATCH", "/api/v1/namespaces/default/finalize"),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("DELETE", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x"),
        ("POST", "/version"),
        ("DELETE", "/apis/apps/v1"),
    ],
)
async def test_a_method_that_makes_no_sense_is_not_allowed(api, pod, method, url):
    await api.made(PODS, pod())

    reply = await api.call(method, url)

    assert (reply.status, reply.body["reason"]) == (405, "MethodNotAllowed")
    assert reply.message == "the server does not allow this method on the requested resource"


@pytest.mark.parametrize("url", ["/api/v1//pods", "/api/v1/namespaces/../pods", "/api/v1/namespaces/%2e%2e/pods",
                                 "/api/v1/namespaces/default/pods/a%2Fb", "/api/v1/pods/a/b/c/d/e"])  # fmt: skip
async def test_a_path_that_can_point_at_nothing_is_refused(api, url):
    reply = await api.get(url)

    assert reply.status in (400, 404)
    assert reply.body["kind"] == "Status"


# --- who --------------------------------------------------------------------------------------------------------------


async def test_an_anonymous_user_may_not_read(api):
    reply = await api.get(PODS, user=None)

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == (
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )


async def test_a_bad_token_is_unauthorized(api):
    reply = await api.get(PODS, user=None, headers={"authorization": "Bearer nonsense"})

    assert (reply.status, reply.message) == (401, "Unauthorized")


async def test_a_static_token_authenticates(serve):
    api = await serve(static_tokens={"s3cret": User("jane", groups=("system:masters",))})

    assert (await api.get(PODS, user=None, headers={"authorization": "Bearer s3cret"})).status == 200


async def test_a_forbidden_user_does_not_learn_which_objects_exist(api):
    known = await api.get("/api/v1/namespaces/default/secrets/none", user=None)
    unknown = await api.get("/api/v1/namespaces/default/nonsense/none", user=None)

    assert known.status == unknown.status == 403


@pytest.fixture
async def account(api):
    """The headers of a service account of the namespace `n1`."""
    await api.made("/api/v1/namespaces", {"metadata": {"name": "n1"}})
    await api.made("/api/v1/namespaces/n1/serviceaccounts", {"metadata": {"name": "bot"}})
    reply = await api.made("/api/v1/namespaces/n1/serviceaccounts/bot/token", {"spec": {}})
    return {"authorization": f"Bearer {reply['status']['token']}"}


async def test_a_service_account_without_a_role_reads_nothing(api, account):
    assert (await api.get("/api/v1/namespaces/n1/configmaps", user=None, headers=account)).status == 403
    assert (await api.get(CONFIGS, user=None, headers=account)).status == 403


async def test_a_namespaces_name_does_not_open_cluster_wide_objects_of_that_name(api, account):
    await api.made("/api/v1/nodes", {"metadata": {"name": "n1"}})

    reply = await api.get("/api/v1/namespaces/n1/nodes/n1", user=None, headers=account)

    assert reply.status in (403, 404)


# --- how long ---------------------------------------------------------------------------------------------------------


async def test_a_request_that_takes_too_long_times_out(serve, config):
    store = HeldStore()
    api = await serve(store, limits=Limits(seconds=0.02))
    store.free.clear()

    reply = await api.get(f"{CONFIGS}/one")
    store.free.set()

    assert (reply.status, reply.body["reason"]) == (504, "Timeout")
    assert "did not complete within" in reply.message
    assert (await api.post(CONFIGS, config("one"))).status == 201


# --- the store's troubles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "reason", "said"),
    [
        pytest.param(StoreFull("no space left"), 507, "InternalError", "nothing was written", id="full"),
        pytest.param(StoreUnavailable("no leader"), 503, "ServiceUnavailable", "no leader", id="unavailable"),
        pytest.param(TooLarge("k", 2_000_000, 1_500_000), 413, "RequestEntityTooLarge", "too large", id="too large"),
        pytest.param(StorageError("odd"), 500, "InternalError", "odd", id="anything else"),
    ],
)
async def test_store_errors_are_answered_with_a_status(serve, config, error, status, reason, said):
    store = FailingStore()
    api = await serve(store)
    await api.made(CONFIGS, config("one"))
    store.error = error

    replies = [
        await api.post(CONFIGS, config("two")),
        await api.patch(f"{CONFIGS}/one", {"data": {"a": "1"}}),
        await api.delete(f"{CONFIGS}/one"),
    ]

    assert [(reply.status, reply.body["reason"]) for reply in replies] == [(status, reason)] * 3
    assert all(said in reply.message for reply in replies)
    assert (await api.get(CONFIGS)).names == ["one"]
    store.error = None
    assert (await api.post(CONFIGS, config("two"))).status == 201


async def test_an_unavailable_store_answers_with_retry_after(serve):
    store = FailingStore()
    api = await serve(store)
    store.error, store.on = StoreUnavailable("away"), ("get", "list")

    reply = await api.get(CONFIGS)

    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    store.error = None


async def test_an_unexpected_exception_is_a_bare_internal_error_and_logged(serve, caplog):
    store = FailingStore()
    api = await serve(store)
    store.error, store.on = ZeroDivisionError("a secret detail"), ("get",)

    with caplog.at_level(logging.ERROR, "podwire.apiserver"):
        reply = await api.get(f"{CONFIGS}/one")
    store.error = None

    assert (reply.status, reply.body["reason"]) == (500, "InternalError")
    assert "secret" not in reply.raw.decode()
    assert "a secret detail" in caplog.text


@pytest.mark.parametrize("method", METHODS)
async def test_every_refusal_has_the_same_shape(api, method):
    reply = await api.call(method, f"{CONFIGS}/none/nothing", {}, user=Certificate("jane"))

    assert {*reply.body} >= {"kind", "apiVersion", "metadata", "status", "message", "reason", "code"}
    assert reply.body["code"] == reply.status
    assert reply.headers["content-type"] == "application/json"

"""Who is let in: by certificate, or by the word of an API server, here one that a test speaks for."""

from dataclasses import dataclass, field

import pytest

from podwire.kubelet.server.auth import Reviewer
from podwire.protocols.k8sapi.client_side import Unreachable
from podwire.protocols.k8sapi.server_side import Certificate, Request
from podwire.protocols.k8sapi.status import ApiError


class Clock:
    now = 0.0

    def wall(self):
        return self.now

    def monotonic(self):
        return self.now


@dataclass
class Api:
    """Knows the token "good", and whom it allows what."""

    allowed: set = field(default_factory=set)
    asked: list = field(default_factory=list)
    away: bool = False

    async def create(self, object_):
        if self.away:
            raise Unreachable("connection refused")
        self.asked.append(object_["kind"])
        spec = object_["spec"]
        if object_["kind"] == "TokenReview":
            good = spec["token"] == "good"
            return {"status": {"authenticated": good, "user": {"username": "robot", "groups": ["robots"]}}}
        attributes = spec["resourceAttributes"]
        assert (attributes["resource"], attributes["name"]) == ("nodes", "n1")
        return {"status": {"allowed": (spec["user"], attributes["verb"], attributes["subresource"]) in self.allowed}}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def reviewer(api, clock):
    return Reviewer(api, "n1", clock)


def asks(method="GET", token="", certificate=None):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return Request(method=method, path="/pods", headers=headers, certificate=certificate)


async def test_masters_are_let_in_without_asking(reviewer, api):
    await reviewer.admit(asks(certificate=Certificate("kube-apiserver-kubelet-client", ("system:masters",))), "proxy")
    assert api.asked == []


async def test_others_are_admitted_by_the_api_server(reviewer, api):
    api.allowed.add(("jane", "create", "proxy"))
    jane = Certificate("jane", ("staff",))
    await reviewer.admit(asks("POST", certificate=jane), "proxy")
    with pytest.raises(ApiError, match=r"Forbidden \(user=jane, verb=get, resource=nodes, .*\[proxy\]\)") as raised:
        await reviewer.admit(asks("GET", certificate=jane), "proxy")
    assert raised.value.code == 403


async def test_a_token_identifies_its_user(reviewer, api):
    api.allowed.add(("robot", "get", "metrics"))
    caller = await reviewer.admit(asks(token="good"), "metrics")
    assert (caller.name, caller.groups) == ("robot", ("robots",))
    assert api.asked == ["TokenReview", "SubjectAccessReview"]


@pytest.mark.parametrize("token", ["", "bad"])
async def test_an_anonymous_request_is_rejected(reviewer, token):
    with pytest.raises(ApiError) as raised:
        await reviewer.admit(asks(token=token), "proxy")
    assert raised.value.code == 401


async def test_answers_are_remembered_for_a_while_refusals_for_less(reviewer, api, clock):
    api.allowed.add(("robot", "get", "metrics"))
    for _ in range(3):
        await reviewer.admit(asks(token="good"), "metrics")
        with pytest.raises(ApiError):
            await reviewer.admit(asks(token="good"), "proxy")
    assert api.asked == ["TokenReview", "SubjectAccessReview", "SubjectAccessReview"]
    api.allowed.add(("robot", "get", "proxy"))
    clock.now += 11
    await reviewer.admit(asks(token="good"), "proxy")
    api.allowed.clear()
    clock.now += 61
    with pytest.raises(ApiError):
        await reviewer.admit(asks(token="good"), "metrics")


async def test_memory_for_strangers_is_bounded(reviewer, api):
    for number in range(1100):
        with pytest.raises(ApiError):
            await reviewer.admit(asks(token=f"bad-{number}"), "proxy")
    before = len(api.asked)
    for number in (1099, 0):
        with pytest.raises(ApiError):
            await reviewer.admit(asks(token=f"bad-{number}"), "proxy")
    assert len(api.asked) == before + 1, "the last is known, the first was forgotten"


async def test_an_unreachable_api_server_admits_no_one(reviewer, api):
    api.away = True
    with pytest.raises(ApiError, match="did not answer a TokenReview") as raised:
        await reviewer.admit(asks(token="good"), "proxy")
    assert raised.value.code == 500

"""Authentication: by certificate, or by an API server, whose answers a test gives here."""

from dataclasses import dataclass, field

import pytest

from podwire.kubelet.server.auth import Reviewer
from podwire.kubelet.server.routes import Right, right_of
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
    extras: list = field(default_factory=list)
    away: bool = False

    async def create(self, object_):
        if self.away:
            raise Unreachable("connection refused")
        self.asked.append(object_["kind"])
        spec = object_["spec"]
        if object_["kind"] == "TokenReview":
            good = spec["token"] == "good"
            return {
                "status": {
                    "authenticated": good,
                    "user": {"username": "robot", "groups": ["robots"], "extra": {"e": ["1"]}},
                }
            }
        self.extras.append(spec.get("extra"))
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


PROXY, METRICS = Right("get", ("proxy",)), Right("get", ("metrics",))


async def test_masters_are_let_in_without_asking(reviewer, api):
    await reviewer.admit(asks(certificate=Certificate("kube-apiserver-kubelet-client", ("system:masters",))), PROXY)
    assert api.asked == []


async def test_others_are_admitted_by_the_api_server(reviewer, api):
    api.allowed.add(("jane", "create", "proxy"))
    jane = Certificate("jane", ("staff",))
    await reviewer.admit(asks("POST", certificate=jane), Right("create", ("proxy",)))
    with pytest.raises(ApiError, match=r"Forbidden \(user=jane, verb=get, resource=nodes, .*\[proxy\]\)") as raised:
        await reviewer.admit(asks("GET", certificate=jane), PROXY)
    assert raised.value.code == 403


async def test_a_token_identifies_its_user(reviewer, api):
    api.allowed.add(("robot", "get", "metrics"))
    caller = await reviewer.admit(asks(token="good"), METRICS)
    assert (caller.name, caller.groups) == ("robot", ("robots",))
    assert api.asked == ["TokenReview", "SubjectAccessReview"]


async def test_the_api_server_is_asked_with_the_callers_extra_fields(reviewer, api):
    api.allowed |= {("robot", "get", "metrics"), ("jane", "get", "metrics")}
    await reviewer.admit(asks(token="good"), METRICS)
    for fingerprint in ("ab12", "cd34", "ab12"):
        await reviewer.admit(asks(certificate=Certificate("jane", ("staff",), fingerprint)), METRICS)
    credential = "authentication.kubernetes.io/credential-id"
    assert api.extras == [{"e": ["1"]}, {credential: ["X509SHA256=ab12"]}, {credential: ["X509SHA256=cd34"]}]


@pytest.mark.parametrize("token", ["", "bad"])
async def test_an_anonymous_request_is_rejected(reviewer, token):
    with pytest.raises(ApiError) as raised:
        await reviewer.admit(asks(token=token), PROXY)
    assert raised.value.code == 401


async def test_answers_are_remembered_for_a_while_refusals_for_less(reviewer, api, clock):
    api.allowed.add(("robot", "get", "metrics"))
    for _ in range(3):
        await reviewer.admit(asks(token="good"), METRICS)
        with pytest.raises(ApiError):
            await reviewer.admit(asks(token="good"), PROXY)
    assert api.asked == ["TokenReview", "SubjectAccessReview", "SubjectAccessReview"]
    api.allowed.add(("robot", "get", "proxy"))
    clock.now += 11
    await reviewer.admit(asks(token="good"), PROXY)
    api.allowed.clear()
    clock.now += 61
    with pytest.raises(ApiError):
        await reviewer.admit(asks(token="good"), METRICS)


async def test_memory_for_strangers_is_bounded(reviewer, api):
    for number in range(1100):
        with pytest.raises(ApiError):
            await reviewer.admit(asks(token=f"bad-{number}"), PROXY)
    before = len(api.asked)
    for number in (1099, 0):
        with pytest.raises(ApiError):
            await reviewer.admit(asks(token=f"bad-{number}"), PROXY)
    assert len(api.asked) == before + 1, "the last is known, the first was forgotten"


async def test_an_unreachable_api_server_admits_no_one(reviewer, api):
    api.away = True
    with pytest.raises(ApiError, match="did not answer a TokenReview") as raised:
        await reviewer.admit(asks(token="good"), PROXY)
    assert raised.value.code == 500


@pytest.mark.parametrize(
    ("method", "path", "verb", "subresources"),
    [
        ("GET", "/healthz", "get", ("healthz", "proxy")),
        ("GET", "/healthz/ping", "get", ("healthz", "proxy")),
        ("GET", "/pods", "get", ("pods", "proxy")),
        ("GET", "/runningpods/", "get", ("pods", "proxy")),
        ("GET", "/configz", "get", ("configz", "proxy")),
        ("GET", "/stats/summary", "get", ("stats",)),
        ("GET", "/metrics", "get", ("metrics",)),
        ("GET", "/metrics/cadvisor", "get", ("metrics",)),
        ("GET", "/logs/", "get", ("log",)),
        ("GET", "/containerLogs/ns/p/c", "get", ("proxy",)),
        ("POST", "/exec/ns/p/c", "create", ("proxy",)),
        ("GET", "/exec/ns/p/c", "create", ("proxy",)),
        ("GET", "//exec/ns/p/c", "create", ("proxy",)),
        ("GET", "/%65xec/ns/p/c", "create", ("proxy",)),
        ("GET", "/attach/ns/p/c", "create", ("proxy",)),
        ("GET", "/portForward/ns/p", "create", ("proxy",)),
        ("GET", "/podsx", "get", ("proxy",)),
        ("GET", "/", "get", ("proxy",)),
    ],
)
def test_a_path_needs_the_finest_right_that_covers_it(method, path, verb, subresources):
    assert right_of(Request(method=method, path=path)) == Right(verb, subresources)


async def test_one_of_several_subresources_suffices(reviewer, api):
    fine = Right("get", ("pods", "proxy"))
    for subresource in ("pods", "proxy"):
        api.allowed.add((f"reader-of-{subresource}", "get", subresource))
        await reviewer.admit(asks(certificate=Certificate(f"reader-of-{subresource}")), fine)
    with pytest.raises(ApiError, match=r"subresource\(s\)=\[pods proxy\]"):
        await reviewer.admit(asks(certificate=Certificate("jane")), fine)

"""The endpoints of the scheduler and the controllers: health for everybody, metrics for those who may read them."""

import pytest

from podwire.cluster import component_endpoints
from podwire.cluster.component_endpoints import ComponentEndpoints, Endpoint
from podwire.protocols.k8sapi.client_side.access_reviews import AccessReviews
from podwire.protocols.k8sapi.server_side import Certificate, Request
from podwire.protocols.prometheus import Metrics
from podwire.transports.clock import SystemClock


class Api:
    """Answers reviews: `monitor` may read metrics, and its token is `good`."""

    def __init__(self):
        self.asked = []

    async def create(self, review):
        self.asked.append((review["kind"], review["spec"]))
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            good = spec["token"] == "good"
            return {"status": {"authenticated": good, "user": {"username": "monitor"}} if good else {}}
        return {
            "status": {"allowed": spec["user"] == "monitor" and spec["nonResourceAttributes"]["path"] == "/metrics"}
        }


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def get(api):
    metrics = Metrics()
    metrics.counter("x_total", "Things").inc()
    endpoints = ComponentEndpoints(metrics, AccessReviews(api, SystemClock()))

    async def ask(path="/metrics", user="", token="", method="GET"):
        certificate = Certificate(user) if user else None
        headers = {"authorization": f"Bearer {token}"} if token else {}
        answer = await endpoints.handle(Request(method=method, path=path, certificate=certificate, headers=headers))
        return answer.status, answer.body.decode()

    return ask


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_is_for_everybody(get, api, path):
    assert await get(path) == (200, "ok")
    assert api.asked == []


async def test_metrics_need_a_right_which_is_asked_for_once(get, api):
    for _ in range(2):
        status, text = await get(token="good")
        assert (status, "x_total 1" in text) == (200, True)
    assert [kind for kind, _ in api.asked] == ["TokenReview", "SubjectAccessReview"]
    assert api.asked[1][1]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert (await get(user="monitor"))[0] == 200


async def test_others_are_refused(get):
    assert await get() == (401, "Unauthorized\n")
    assert (await get(token="bad"))[0] == 401
    assert await get(user="eve") == (403, 'forbidden: User "eve" cannot get path "/metrics"\n')
    assert (await get("/configz", user="monitor"))[0] == 403


async def test_a_port_that_is_taken_costs_the_metrics_only(api, tmp_path, caplog):
    missing = Endpoint(port=1, certificate=tmp_path / "no.crt", key=tmp_path / "no.key")
    async with component_endpoints.serving(missing, api, Metrics(), SystemClock()) as port:
        assert port is None
    assert "cannot serve component metrics" in caplog.text

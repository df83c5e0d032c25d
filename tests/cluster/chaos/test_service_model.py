"""Each rule for Services and the counter finds its violation, and nothing else."""

import pytest

from podwire.cluster.chaos.service_model import GROUP_LABEL, SERVICE_LABEL, CounterModel, Request, ServiceModel


def a_pod(name, ip, group="1", ready="True", **meta):
    return {
        "metadata": {"name": name, "labels": {GROUP_LABEL: group}, **meta},
        "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]},
    }


def a_service(name, uid="u1", ip="10.96.0.7"):
    return {"metadata": {"name": name, "uid": uid}, "spec": {"clusterIP": ip, "clusterIPs": [ip]}}


def a_slice(service, *addresses, ready=True):
    endpoints = [{"addresses": [address], "conditions": {"ready": ready}} for address in addresses]
    return {"metadata": {"labels": {SERVICE_LABEL: service}}, "addressType": "IPv4", "endpoints": endpoints}


@pytest.fixture
def model():
    """One Service, acknowledged."""
    made = ServiceModel()
    made.asked("s", "1")
    made.created("s", a_service("s"))
    return made


@pytest.mark.parametrize(
    ("services", "wrong"),
    [
        pytest.param([a_service("s")], [], id="as acknowledged"),
        pytest.param([], ["service s was acknowledged with uid u1, and is lost"], id="lost"),
        pytest.param(
            [a_service("s", uid="u2")], ["service s was acknowledged with uid u1, and is now u2"], id="another one"
        ),
        pytest.param(
            [a_service("s", ip="10.96.0.8")],
            ["service s had the address 10.96.0.7 and has 10.96.0.8"],
            id="another address",
        ),
        pytest.param(
            [a_service("s"), a_service("t", uid="u2")],
            ["service address 10.96.0.7 is used by service s and service t"],
            id="one address twice",
        ),
    ],
)
def test_a_list_of_services(model, services, wrong):
    assert model.observe(services, {"s"}) == wrong


def test_a_service_that_was_acknowledged_meanwhile_may_be_missing(model):
    assert model.observe([], set()) == []


@pytest.mark.parametrize(
    ("slices", "pods", "wrong"),
    [
        pytest.param([a_slice("s", "10.0.0.1")], [a_pod("a", "10.0.0.1"), a_pod("b", "10.0.0.2", "2")], [], id="right"),
        pytest.param([], [a_pod("a", "10.0.0.1")], ["service s has no endpoint for 10.0.0.1"], id="missing"),
        pytest.param(
            [a_slice("s", "10.0.0.1")],
            [a_pod("a", "10.0.0.1", ready="False")],
            ["service s has the endpoint 10.0.0.1, which is not the address of a ready pod"],
            id="not ready",
        ),
        pytest.param([a_slice("s", "10.0.0.1", ready=False)], [], [], id="neither is ready"),
        pytest.param([], [a_pod("a", "10.0.0.1", deletionTimestamp="now")], [], id="being deleted"),
    ],
)
def test_endpoints_are_the_ready_pods(model, slices, pods, wrong):
    assert model.unfinished(slices, pods) == wrong


def test_a_deleted_service_has_no_endpoints(model):
    model.deleting("s")
    assert model.unfinished([a_slice("s", "10.0.0.1")], []) == ["service s was deleted and has endpoints"]
    assert model.unfinished([], []) == []


def test_requests_to_pods_services_and_addresses_of_deleted_services(model):
    model.asked("t", "2")
    model.created("t", a_service("t", ip="10.96.0.8"))
    model.deleting("t")
    found = {request.subject: request for request in model.requests([a_pod("a", "10.0.0.1")])}
    assert found["pod a"] == Request("pod a", "10.0.0.1", 8080, frozenset({"a"}))
    assert found["service s"] == Request("service s", "10.96.0.7", 80, frozenset({"a"}))
    assert found["a deleted service"] == Request("a deleted service", "10.96.0.8", 80, frozenset())
    model.quiet()
    assert [request.subject for request in model.requests([])] == ["service s"]


def test_an_address_of_a_deleted_service_that_another_one_has_may_answer(model):
    model.deleting("s")
    model.asked("t", "1")
    model.created("t", a_service("t"))
    assert [request.subject for request in model.requests([])] == ["service t"]


@pytest.mark.parametrize(
    ("names", "answer", "wrong"),
    [
        ({"a", "b"}, "b", ""),
        ((), "", ""),
        ({"a"}, "c", "service s at 10.0.0.1: answered by c on node-1, expected a"),
        ({"a"}, "", "service s at 10.0.0.1: answered by nobody on node-1, expected a"),
        ((), "c", "service s at 10.0.0.1: answered by c on node-1, expected nobody"),
    ],
)
def test_answers_are_compared_with_the_pods_that_may_give_them(names, answer, wrong):
    assert Request("service s", "10.0.0.1", 80, frozenset(names)).problem("node-1", answer) == wrong


@pytest.mark.parametrize(("value", "is_right"), [(3, False), (4, True), (5, True), (6, False)])
def test_the_counter_has_an_acknowledged_value_or_a_later_one(value, is_right):
    counter = CounterModel()
    counter.sent, counter.acknowledged = 5, 4
    assert (counter.observe(value, 4) == []) == is_right

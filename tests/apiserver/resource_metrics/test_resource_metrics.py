"""metrics.k8s.io: usage from kubelets, which are asked only when somebody asks."""

import pytest

from podwire.apiserver.resource_metrics import samples
from podwire.apiserver.resource_metrics.samples import NODE, Reading, Usage
from podwire.apiserver.resource_metrics.verbs import go_duration
from podwire.protocols.k8sapi.server_side import Certificate, Response
from podwire.protocols.k8sapi.status import ApiError, Reason
from tests.apiserver.support import PODS, TABLE, MovableClock

GROUP = "/apis/metrics.k8s.io/v1beta1"
KEY = ("default", "web", "main")


class Kubelets:
    """A node whose containers use a tenth of a processor, by the test's clock."""

    def __init__(self, clock):
        self.clock = clock
        self.asked = 0
        self.answer = None

    async def connect(self, kubelet, path, query, request):
        self.asked += 1
        assert path == "/metrics/resource"
        if self.answer is not None:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        self.clock.move(1)
        at = int(self.clock.wall() * 1000)
        cpu = (self.clock.wall() - 1_800_000_000) / 10
        lines = [f"node_cpu_usage_seconds_total {cpu * 2:.9f} {at}", f"node_memory_working_set_bytes 2048000 {at}"]
        for pod, container in (("web", "main"), ("web", "side"), ("other", "main")):
            labels = f'container="{container}",namespace="default",pod="{pod}"'
            lines += [f"container_cpu_usage_seconds_total{{{labels}}} {cpu:.9f} {at}"]
            lines += [f"container_memory_working_set_bytes{{{labels}}} 1024000 {at}"]
        return Response(status=200, body="\n".join(["# HELP x y", *lines]).encode(), content_type="text/plain")


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def kubelets(clock):
    return Kubelets(clock)


@pytest.fixture
async def api(serve, kubelets, clock, pod):
    api = await serve(kubelets=kubelets, clock=clock)
    await api.made("/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"zone": "a"}}})
    status = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    await api.patch("/api/v1/nodes/n1/status", status)
    await api.made(PODS, pod("web", node="n1", labels={"app": "web"}))
    await api.made(PODS, pod("other", node="n1"))
    await api.made(PODS, pod("pending"))
    return api


async def test_pods_have_the_usage_of_their_containers(api, kubelets):
    listed = (await api.get(f"{GROUP}/namespaces/default/pods")).body
    assert (listed["kind"], listed["apiVersion"]) == ("PodMetricsList", "metrics.k8s.io/v1beta1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["other", "web"]
    web = listed["items"][1]
    assert web["window"] == "1s"
    assert web["metadata"]["labels"] == {"app": "web"}
    usage = {"cpu": "100000000n", "memory": "1000Ki"}
    assert web["containers"] == [{"name": "main", "usage": usage}, {"name": "side", "usage": usage}]
    assert kubelets.asked == 2


async def test_nodes_have_their_own_usage(api):
    [node] = (await api.get(f"{GROUP}/nodes?labelSelector=zone%3Da")).body["items"]
    assert node["usage"] == {"cpu": "200000000n", "memory": "2000Ki"}
    assert (await api.get(f"{GROUP}/nodes?labelSelector=zone%3Db")).body["items"] == []
    assert (await api.get(f"{GROUP}/nodes/n1")).body["kind"] == "NodeMetrics"


async def test_a_kubelet_is_asked_once_for_several_questions_and_once_again_later(api, kubelets, clock):
    for _ in range(3):
        await api.get(f"{GROUP}/pods")
    assert kubelets.asked == 2
    clock.move(30)
    listed = (await api.get(f"{GROUP}/pods")).body["items"]
    assert kubelets.asked == 3
    assert listed[0]["window"] == "31s"
    clock.move(1000)
    listed = (await api.get(f"{GROUP}/pods")).body["items"]
    assert (kubelets.asked, listed[0]["window"]) == (5, "1s")


async def test_selectors_choose_pods(api):
    url = f"{GROUP}/namespaces/default/pods"
    assert (await api.get(f"{url}?labelSelector=app%3Dweb")).names == ["web"]
    assert (await api.get(f"{url}?fieldSelector=metadata.name%3Dother")).names == ["other"]
    assert (await api.get(f"{url}?labelSelector=%3D%3D")).status == 400
    assert (await api.get(f"{GROUP}/namespaces/elsewhere/pods")).body["items"] == []


async def test_what_is_not_known_is_not_found(api):
    for name in ("nope", "pending"):
        reply = await api.get(f"{GROUP}/namespaces/default/pods/{name}")
        assert (reply.status, reply.message) == (404, f'pods.metrics.k8s.io "{name}" not found')


async def test_a_table_for_kubectl_get(api):
    table = (await api.get(f"{GROUP}/namespaces/default/pods/web", accept=TABLE)).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "CPU", "Memory", "Window"]
    assert table["rows"][0]["cells"] == ["web", "200000000n", "2000Ki", "1s"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ApiError(Reason.INTERNAL_ERROR, "no route"), id="no answer"),
        pytest.param(Response(status=404, body=b"404 page not found", content_type="text/plain"), id="an old kubelet"),
        pytest.param(Response(status=200, body=b"\xff{} 1\nnode_cpu_usage_seconds_total x\n"), id="nonsense"),
    ],
)
async def test_a_node_that_does_not_answer_has_no_usage(api, kubelets, answer):
    kubelets.answer = answer
    assert (await api.get(f"{GROUP}/nodes")).body["items"] == []


async def test_without_kubelets_it_says_so(serve):
    api = await serve()
    assert (await api.get(f"{GROUP}/nodes")).body["items"] == []
    await api.made("/api/v1/nodes", {"metadata": {"name": "n1"}})
    reply = await api.get(f"{GROUP}/nodes")
    assert (reply.status, reply.body["reason"]) == (503, "ServiceUnavailable")


async def test_it_is_discovered_and_read_only(api):
    found = (await api.get(GROUP)).body["resources"]
    assert [(row["name"], row["kind"], row["verbs"]) for row in found] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]
    assert (await api.post(f"{GROUP}/namespaces/default/pods", {})).status == 405
    assert (await api.get(f"{GROUP}/pods?watch=true")).status == 405
    assert (await api.get(f"{GROUP}/pods", user=Certificate("nobody"))).status == 403


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(Reading(10, 1, 0), Reading(20, 2, 7), Usage(20, 10, 100_000_000, 7), id="two readings"),
        pytest.param(None, Reading(20, 2, 7, 10), Usage(20, 10, 200_000_000, 7), id="new: since its start"),
        pytest.param(Reading(10, 9, 0, 1), Reading(20, 1, 7, 15), Usage(20, 5, 200_000_000, 7), id="restarted"),
        pytest.param(None, Reading(20, 2, 7), None, id="new, without a start"),
        pytest.param(Reading(20, 2, 7), Reading(20, 2, 7), None, id="the same reading"),
        pytest.param(Reading(10, 5, 7), Reading(20, 2, 7), None, id="a counter that went back"),
        pytest.param(None, Reading(20, 2, 7, 19.9), None, id="too new"),
        pytest.param(Reading(10, 5, 7), None, None, id="gone"),
    ],
)
def test_usage_between_two_readings(before, now, expected):
    result = samples.usage({KEY: before} if before else {}, {KEY: now} if now else {}, KEY)
    assert result == expected


def test_readings_are_parsed_and_strangers_are_skipped():
    lines = [
        "# TYPE node_cpu_usage_seconds_total counter",
        "node_cpu_usage_seconds_total 5.5 20000",
        "node_memory_working_set_bytes 1e3 20000",
        'container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 2',
        'container_memory_working_set_bytes{container="main",namespace="default",pod="web"} 7 1',
        'container_start_time_seconds{container="main",namespace="default",pod="web"} 3',
        'container_cpu_usage_seconds_total{container="",namespace="default",pod="web"} 2',
        'container_cpu_usage_seconds_total{container="half",namespace="default",pod="web"} 2',
        "container_cpu_usage_seconds_total{ 2",
    ]
    assert samples.parse("\n".join(lines), 99.0) == {NODE: Reading(20, 5.5, 1000), KEY: Reading(99, 2, 7, 3)}


@pytest.mark.parametrize(("seconds", "text"), [(0.5, "500ms"), (15.1, "15.1s"), (60, "1m0s"), (90.25, "1m30.25s")])
def test_durations_as_go_prints_them(seconds, text):
    assert go_duration(seconds) == text

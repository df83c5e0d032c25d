"""The server as a function: what a path leads to, and what is said when it leads nowhere."""

import asyncio
import errno

import msgspec
import pytest

from podwire.kubelet.server import Host, KubeletMetrics, KubeletServer, cadvisor
from podwire.kubelet.server.limits import ServerLimits
from podwire.kubelet.server.rates import Rates
from podwire.kubelet.server.summary import Summary
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Internal, InvalidArgument, Unavailable
from podwire.protocols.k8sapi.server_side import Request, Stream, Tunnel, Upgrade
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.transports.clock import SystemClock

UPGRADE = {"upgrade": "websocket", "sec-websocket-protocol": "v5.channel.k8s.io"}


class Doorman:
    """Lets everybody in, or nobody; knows which rights were asked for."""

    def __init__(self):
        self.rights = []
        self.refuses = None

    async def admit(self, request, right):
        self.rights.append(right)
        if self.refuses:
            raise self.refuses


class Conversations:
    """Keeps the URLs that it was sent to."""

    def __init__(self):
        self.urls = []
        self.spdy = []

    async def conversation(self, url, asked, spdy=(), protocols=()):
        self.urls.append(url)
        self.spdy.append([item.name for item in spdy])

        async def run(socket): ...

        return Upgrade(protocols=("v5.channel.k8s.io",), run=run)

    async def tunnel(self, url, asked):
        self.urls.append(url)
        self.spdy.append(asked.headers["upgrade"])

        async def run(wire): ...

        return Tunnel(protocol="SPDY/3.1", run=run)


@pytest.fixture
def doorman():
    return Doorman()


@pytest.fixture
def conversations():
    return Conversations()


@pytest.fixture
def server(book, runtime, conversations, doorman):
    host = Host(node="n1", settings={"port": 10250})
    limits = ServerLimits(reach=0.5, pauses=(0.01, 0.05), first_rates=0.3)
    opened = KubeletServer(host, book, runtime, conversations, doorman, KubeletMetrics(), SystemClock(), limits)
    yield opened
    opened.close()


@pytest.fixture
def get(server):
    """`await get("/pods", headers=…, tailLines=…)`."""

    async def ask(path, *, method="GET", headers=None, command=None, **query):
        asked = {name: [value] for name, value in query.items()} | ({"command": command} if command else {})
        return await server.handle(Request(method=method, path=path, headers=headers or {}, query=asked))

    return ask


def reported(answer):
    return answer.status, answer.body.decode().strip()


async def test_a_log(get, book, pod, seen, tmp_path):
    log = tmp_path / "0.log"
    log.write_text("2026-11-15T10:00:00Z stdout F a\n2026-11-15T10:00:00Z stdout F b\n")
    book.put(pod(), seen(log=log))
    answer = await get("/containerLogs/default/web/main", tailLines="1")
    assert isinstance(answer, Stream)
    assert answer.content_type.startswith("text/plain")
    assert b"".join([chunk async for chunk in answer.chunks]) == b"b\n"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/containerLogs/default/other/main", (404, 'pod "other" does not exist')),
        ("/containerLogs/default/web/other", (404, 'container "other" not found in pod "web"')),
        ("/containerLogs/default/web/main", (400, 'container "main" in pod "web" is waiting to start: BadLuck')),
        ("/containerLogs/default/web", (404, "404 page not found")),
        ("/containerLogs/default/web/uid-else/main", (404, 'pod "web" does not exist')),
        ("/exec/default/web/uid-web/main", (500, 'container not found ("main")')),
        ("/portForward/default/web", (400, 'unable to forward port because pod "web" is not running')),
        ("/portForward/default/other", (404, 'pod "other" does not exist')),
        ("/nothing", (404, "404 page not found")),
        ("/", (404, "404 page not found")),
    ],
)
async def test_refusals_are_sentences(get, book, pod, path, said):
    book.put(pod(statuses=[{"name": "main", "state": {"waiting": {"reason": "BadLuck"}}}]))
    assert reported(await get(path)) == said


async def test_a_bad_option_is_named(get, book, pod, seen):
    book.put(pod(), seen())
    status, why = reported(await get("/containerLogs/default/web/main", tailLines="x"))
    assert (status, why) == (400, 'tailLines: Invalid value: "x": must be a number')


async def test_a_command_is_asked_for_at_the_runtime_and_talked_with_there(
    get, book, pod, seen, runtime, conversations
):
    book.put(pod(), seen())
    answer = await get(
        "/exec/default/web/main",
        headers=UPGRADE,
        command=["sh", "-c", "a b"],
        input="1",
        output="1",
        tty="1",
        error="1",
    )
    assert isinstance(answer, Upgrade)
    assert runtime.asked == [
        pb.ExecRequest(container_id="main-0", cmd=["sh", "-c", "a b"], stdin=True, stdout=True, tty=True)
    ]
    assert (conversations.urls, conversations.spdy) == ([runtime.url], [[]])


@pytest.mark.parametrize(
    ("query", "channels"),
    [
        ({"output": "1"}, ["ERROR", "STDOUT"]),
        ({"input": "1", "output": "1", "error": "1"}, ["ERROR", "STDIN", "STDOUT", "STDERR"]),
        ({"input": "1", "output": "1", "error": "1", "tty": "1"}, ["ERROR", "STDIN", "STDOUT", "RESIZE"]),
    ],
    ids=["output", "all", "a terminal"],
)
async def test_with_runtimes_of_others_it_talks_in_spdy(get, book, pod, seen, runtime, conversations, query, channels):
    runtime.name = "containerd"
    book.put(pod(), seen())
    assert isinstance(await get("/exec/default/web/main", headers=UPGRADE, command=["sh"], **query), Upgrade)
    assert conversations.spdy == [channels]


async def test_attaching(get, book, pod, seen, runtime):
    book.put(pod(), seen())
    assert isinstance(await get("/attach/default/web/main", headers=UPGRADE, output="1", error="1"), Upgrade)
    assert runtime.asked == [pb.AttachRequest(container_id="main-0", stdout=True, stderr=True)]


async def test_a_client_of_spdy_talks_with_the_runtime_itself(get, book, pod, seen, runtime, conversations):
    book.put(pod(), seen())
    for path, query in (("/exec/default/web/main", {"command": ["sh"]}), ("/attach/default/web/main", {})):
        answer = await get(path, method="POST", headers={"upgrade": "SPDY/3.1"}, output="1", **query)
        assert isinstance(answer, Tunnel)
    assert (conversations.urls, conversations.spdy) == ([runtime.url] * 2, ["SPDY/3.1"] * 2)


TUNNEL = {"upgrade": "websocket", "sec-websocket-protocol": "SPDY/3.1+portforward.k8s.io"}


@pytest.mark.parametrize(
    ("headers", "query", "ports", "answer"),
    [
        ({"upgrade": "SPDY/3.1"}, {}, [], Tunnel),
        (TUNNEL, {"port": "x"}, [], Tunnel),
        (UPGRADE, {"port": "80,81,82"}, [80, 81, 82], Upgrade),
    ],
    ids=["SPDY", "SPDY within a WebSocket", "channels"],
)
async def test_ports_are_reached_by_the_runtime(
    get, book, pod, seen, runtime, conversations, headers, query, ports, answer
):
    book.put(pod(), seen())
    assert isinstance(await get("/portForward/default/web", headers=headers, **query), answer)
    [asked] = runtime.asked
    assert asked == pb.PortForwardRequest(pod_sandbox_id="sandbox-1", port=ports)
    assert conversations.urls == [runtime.url]


@pytest.mark.parametrize(
    ("headers", "query", "why"),
    [
        ({}, {}, "requires an upgrade to WebSocket"),
        (UPGRADE, {}, "between 1 and 127 ports must be asked for"),
        (UPGRADE, {"port": "80,http"}, "'http' is not a port"),
    ],
)
async def test_ports_that_cannot_be_reached(get, book, pod, seen, runtime, headers, query, why):
    book.put(pod(), seen())
    status, said = reported(await get("/portForward/default/web", headers=headers, **query))
    assert status == 400
    assert why in said
    assert runtime.asked == []


@pytest.mark.parametrize(
    ("query", "headers", "why"),
    [
        ({"command": ["true"]}, UPGRADE, "you must specify at least 1 of stdin, stdout, stderr"),
        ({"output": "1"}, UPGRADE, "you must specify at least 1 command"),
        ({"command": ["true"], "output": "1"}, {"upgrade": "h2c"}, "upgrade to WebSocket or SPDY/3.1"),
    ],
)
async def test_an_invalid_request_is_rejected_before_the_runtime_is_called(
    get, book, pod, seen, runtime, query, headers, why
):
    book.put(pod(), seen())
    status, said = reported(await get("/exec/default/web/main", method="POST", headers=headers, **query))
    assert status == 400
    assert why in said
    assert runtime.asked == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidArgument("tty: no"), (400, "tty: no")),
        (Internal("no pty"), (500, "container runtime error: no pty")),
    ],
)
async def test_a_runtime_that_refuses_is_quoted(get, book, pod, seen, runtime, error, said):
    book.put(pod(), seen())
    runtime.refuses = error
    assert reported(await get("/attach/default/web/main", headers=UPGRADE, output="1")) == said
    assert len(runtime.asked) == 1


STREAMS = [
    ("/exec/default/web/main", {"output": "1", "command": ["id"]}),
    ("/attach/default/web/main", {"output": "1"}),
    ("/portForward/default/web", {"port": "80"}),
]


@pytest.mark.parametrize(("path", "query"), STREAMS)
async def test_a_runtime_that_restarts_is_called_again(get, book, pod, seen, runtime, path, query):
    book.put(pod(), seen())
    runtime.refuses = Unavailable("failed to connect to all addresses; last error: UNKNOWN: unix:/run/x.sock")
    asyncio.get_running_loop().call_later(0.1, setattr, runtime, "refuses", None)
    assert isinstance(await get(path, headers=UPGRADE, **query), Upgrade)


@pytest.mark.parametrize(("path", "query"), STREAMS)
async def test_a_runtime_that_is_away_is_named_and_its_grpc_error_is_not_shown(
    get, book, pod, seen, runtime, path, query
):
    book.put(pod(), seen())
    runtime.refuses = Unavailable("failed to connect to all addresses; last error: UNKNOWN: unix:/run/x.sock")
    said = (503, "the container runtime of this node is not reachable; try again when it is back")
    assert reported(await get(path, headers=UPGRADE, **query)) == said


async def test_a_streaming_server_that_is_away_is_asked_for_again(get, book, pod, seen, runtime, conversations):
    """The runtime ends between its answer and the connection to the URL in it, and the next one has another URL."""
    book.put(pod(), seen())
    connect = conversations.conversation
    refused = ApiError(Reason.UNKNOWN, "error dialing backend", code=500)
    refused.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")

    async def refuse_once(*args):
        conversations.conversation = connect
        runtime.url = "http://127.0.0.1:2/exec/other"
        raise refused

    conversations.conversation = refuse_once
    assert isinstance(await get("/exec/default/web/main", headers=UPGRADE, output="1", command=["id"]), Upgrade)
    assert conversations.urls == ["http://127.0.0.1:2/exec/other"]


async def test_pods_as_clients_see_them(get, book, pod):
    book.put(pod())
    answer = msgspec.json.decode((await get("/pods")).body)
    assert (answer["kind"], [item["metadata"]["name"] for item in answer["items"]]) == ("PodList", ["web"])
    assert answer["items"][0]["kind"] == "Pod"


async def test_health_settings_and_use(get):
    assert reported(await get("/healthz")) == (200, "ok")
    assert reported(await get("/configz")) == (200, '{"kubeletconfig":{"port":10250}}')
    used = msgspec.json.decode((await get("/stats/summary")).body)
    assert (used["node"]["nodeName"], used["pods"][0]["podRef"]["name"]) == ("n1", "web")


def test_use_of_pods_by_their_containers():
    labels = {"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u1"}
    stats = [pb.ContainerStats(), pb.ContainerStats(), pb.ContainerStats()]
    for each, name in zip(stats, ("a", "b", "stranger"), strict=True):
        each.attributes.metadata.name = name
        each.attributes.labels.update(labels if name != "stranger" else {})
        each.memory.working_set_bytes.value = 7
    [pod] = Summary("n1", Rates()).of_containers(None, stats, {})["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "shop", "uid": "u1"}
    assert [(container["name"], container["memory"]["workingSetBytes"]) for container in pod["containers"]] == [
        ("a", 7),
        ("b", 7),
    ]


async def test_figures(get, book, pod, seen):
    book.put(pod(), seen(), seen(pb.CONTAINER_EXITED, attempt=1))
    lines = (await get("/metrics")).body.decode().splitlines()
    assert 'kubelet_running_containers{container_state="running"} 1' in lines
    assert 'kubelet_running_containers{container_state="exited"} 1' in lines
    [memory] = [line for line in lines if line.startswith("process_resident_memory_bytes ")]
    assert int(memory.split()[1]) > 1_000_000


def test_metrics_of_the_runtime_have_the_labels_of_their_descriptors():
    descriptors = [
        pb.MetricDescriptor(name="container_threads", help="Threads", label_keys=["pod", "container"]),
        pb.MetricDescriptor(name="container_memory_failcnt", help="Limits hit", label_keys=["pod"]),
        pb.MetricDescriptor(name="container_sockets", help="Sockets", label_keys=["pod"]),
    ]
    pod = pb.PodSandboxMetrics()
    pod.metrics.add(name="container_memory_failcnt", label_values=["web"], metric_type=pb.COUNTER).value.value = 3
    rows = pod.container_metrics.add().metrics
    rows.add(name="container_threads", label_values=['a"b', "main"], metric_type=pb.GAUGE).value.value = 2
    rows.add(name="container_threads", label_values=["too few"]).value.value = 9
    rows.add(name="unknown", label_values=["web"]).value.value = 9
    assert cadvisor.text(descriptors, [pod]).splitlines() == [
        "# HELP container_memory_failcnt Limits hit",
        "# TYPE container_memory_failcnt counter",
        'container_memory_failcnt{pod="web"} 3',
        "# HELP container_threads Threads",
        "# TYPE container_threads gauge",
        'container_threads{pod="a\\"b",container="main"} 2',
    ]


def test_how_long_pods_took_to_start():
    meter = KubeletMetrics()
    for item in (0.05, 0.06, 1000.0):
        meter.pod_started(item)
    lines = [line for line in meter.text([]).splitlines() if line.startswith("kubelet_pod_start")]
    name = "kubelet_pod_start_sli_duration_seconds"
    assert lines[0] == f'{name}_bucket{{le="0.05"}} 1'
    assert lines[1] == f'{name}_bucket{{le="0.1"}} 2'
    assert lines[-3:] == [f'{name}_bucket{{le="+Inf"}} 3', f"{name}_sum 1000.11", f"{name}_count 3"]


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/metrics", "metrics"),
        ("/metrics/cadvisor", "metrics"),
        ("/stats/summary", "stats"),
        ("/logs/syslog", "log"),
        ("/containerLogs/default/web/main", "proxy"),
        ("/exec/default/web/main", "proxy"),
        ("/healthz", "healthz"),
        ("/nothing", "proxy"),
    ],
)
async def test_every_path_takes_a_right(get, doorman, path, right):
    doorman.refuses = ApiError(Reason.UNAUTHORIZED, "Unauthorized")
    assert reported(await get(path)) == (401, "Unauthorized")
    assert [right.subresources[0] for right in doorman.rights] == [right]


async def test_a_method_that_does_not_fit(get):
    assert (await get("/pods", method="POST")).status == 405
    assert (await get("/containerLogs/default/web/main", method="POST")).status == 405

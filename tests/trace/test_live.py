"""A running API server that is watched: calls of kubectl are reported, arrow by arrow, without any effect on it."""

import asyncio
import contextlib
import json
import shutil
from pathlib import Path

import pytest

from podwire.cli.main import main
from podwire.cluster import tracing
from podwire.cluster.apiserver import Options, running
from podwire.cluster.store_tap import tapped_store
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.kubeconfig import parse
from podwire.trace.pod_trace import PodTraces, Turn
from podwire.trace.segments import Reader
from podwire.transports import http_client

SOON = 60.0
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: busybox}]}
"""


@pytest.fixture
async def collector(tmp_path, monkeypatch, appeared):
    """A collector below a prefix, which everybody finds in the environment."""
    options = tracing.CollectorOptions.below(tmp_path)
    running_ = asyncio.create_task(tracing.collect(options))
    await appeared(options.socket)
    monkeypatch.setenv(tracing.VARIABLE, str(options.socket))
    yield options
    running_.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running_


async def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "") -> str:
    program = shutil.which("kubectl")
    assert program, "kubectl is not on PATH"
    process = await asyncio.create_subprocess_exec(
        program, "--kubeconfig", str(kubeconfig), *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate(stdin.encode())
    assert process.returncode == 0
    return out.decode()


async def apply(kubeconfig: Path) -> None:
    """Once there is an account for it, which a controller makes."""
    await kubectl(kubeconfig, "wait", "--for=create", "serviceaccount/default", f"--timeout={SOON:.0f}s")
    await kubectl(kubeconfig, "apply", "-f", "-", stdin=POD)


async def story_with(directory: Path, wanted):
    """The story of default/web once it has what is wanted of it."""
    traces, reader = PodTraces(), Reader(directory)
    async with asyncio.timeout(SOON):
        while True:
            traces.learn(reader.more())
            trace = traces.find("default", "web")
            if trace is not None and wanted(trace):
                return trace
            await asyncio.sleep(0.01)


def looked_at(trace) -> bool:
    """Whether `kubectl get` is reported, and every call to its end."""
    typed = [arrow.label for arrow in trace.arrows if arrow.caller == "User"]
    return "kubectl get" in typed and all(arrow.took is not None for arrow in trace.arrows)


async def test_kubectl_apply_is_recorded_from_the_user_to_the_store(tmp_path, collector, capsys):
    async with running(Options(data_dir=tmp_path / "data", port=0, store_url="memory://")) as server:
        await apply(server.kubeconfig)
        uid = await kubectl(server.kubeconfig, "get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
        trace = await story_with(collector.directory, looked_at)
    assert trace.pod == uid.replace("-", "")
    drawn = [(arrow.caller, arrow.callee, arrow.label) for arrow in trace.arrows]
    made = drawn.index(("KubeCtl", "APIServer", "POST /api/v1/namespaces/default/pods"))
    assert ("User", "KubeCtl", "kubectl apply") in drawn[:made]
    assert drawn[made + 1 : made + 4] == [
        ("APIServer", "Memory", "create pods/default/web (Pending)"),
        ("Memory", "APIServer", "OK"),
        ("APIServer", "KubeCtl", "201 Created (Pending)"),
    ]
    assert main(["trace", "web", "--prefix", str(tmp_path)]) == 0
    assert "kubectl apply" in capsys.readouterr().out
    assert main(["trace", "--prefix", str(tmp_path)]) == 0
    assert trace.pod in capsys.readouterr().out
    assert main(["trace", "default/web", "--prefix", str(tmp_path), "--format", "mermaid"]) == 0
    assert capsys.readouterr().out.startswith("sequenceDiagram\n")
    assert main(["trace", "web", "--prefix", str(tmp_path), "--format", "json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert set(records[0]) == {"id", "seq", "time", "from", "to", "method", "pod", "node", "outcome", "detail"}
    assert main(["trace", "web", "--prefix", str(tmp_path), "--check", "pod"]) == 1
    found = capsys.readouterr().out
    assert "missing: Kubelet->>ContainerRuntime: CreateContainerRequest" in found
    assert "missing: KubeCtl" not in found


async def test_a_watch_event_is_recorded_and_the_watch_comes_first(tmp_path, collector):
    async with running(Options(data_dir=tmp_path / "data", port=0, store_url="memory://")) as server:
        access = parse(server.kubeconfig.read_text(), file=str(server.kubeconfig))
        async with http_client.connect(access, user_agent="podwire-scheduler") as http:
            client = Client(http)
            kind = client.kind_of({"apiVersion": "v1", "kind": "Pod"})
            watching = await client.watch(kind)
            await apply(server.kubeconfig)
            trace = await story_with(
                collector.directory, lambda each: any(one.turn is Turn.EVENT for one in each.arrows)
            )
            watching.close()
    assert (trace.arrows[0].caller, trace.arrows[0].turn) == ("Scheduler", Turn.CALL)
    [event] = [arrow for arrow in trace.arrows if arrow.turn is Turn.EVENT]
    assert (event.caller, event.callee, event.label) == ("APIServer", "Scheduler", "ADDED default/web (Pending)")


async def test_a_client_of_a_foreign_api_server_records_its_own_requests(tmp_path, collector, monkeypatch):
    tap = tracing.tap("Kubelet", "n1")
    monkeypatch.delenv(tracing.VARIABLE)
    async with running(Options(data_dir=tmp_path / "data", port=0, store_url="memory://")) as server:
        access = parse(server.kubeconfig.read_text(), file=str(server.kubeconfig))
        async with http_client.connect(access, user_agent="podwire-kubelet", tap=tap, callee="APIServer") as http:
            client = Client(http)
            kind = client.kind_of({"apiVersion": "v1", "kind": "Pod"})
            watching = await client.watch(kind)
            await apply(server.kubeconfig)
            async with asyncio.timeout(SOON):
                async for frame in watching:
                    assert frame.type == "ADDED"
                    break
            await client.get(kind, "web", "default")
            trace = await story_with(collector.directory, lambda each: len(each.arrows) == 4)
            watching.close()
    assert [(arrow.caller, arrow.callee, arrow.turn) for arrow in trace.arrows] == [
        ("Kubelet", "APIServer", Turn.CALL),
        ("APIServer", "Kubelet", Turn.EVENT),
        ("Kubelet", "APIServer", Turn.CALL),
        ("APIServer", "Kubelet", Turn.REPLY),
    ]


async def test_without_a_collector_nothing_is_watched(tmp_path, monkeypatch):
    monkeypatch.delenv(tracing.VARIABLE, raising=False)
    assert tracing.tap("APIServer") is None
    store = object()
    assert tapped_store(store, None, "") is store
    async with running(Options(data_dir=tmp_path / "data", port=0, store_url="memory://")) as server:
        assert type(server.assembled.engine.store).__module__ != tapped_store.__module__


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["trace", "web"], "nothing was recorded"),
        (["trace", "--follow"], "need a POD"),
        (["trace", "--check", "pod"], "need a POD"),
    ],
    ids=" ".join,
)
def test_trace_errors_are_one_line(arguments, reported, tmp_path, capsys):
    assert main([*arguments, "--prefix", str(tmp_path)]) == 1
    assert reported in capsys.readouterr().err


def test_an_unknown_pod_is_named_in_the_error(tmp_path, capsys):
    tracing.CollectorOptions.below(tmp_path).directory.mkdir(parents=True)
    assert main(["trace", "web", "-n", "shop", "--prefix", str(tmp_path)]) == 1
    assert "no pod shop/web was recorded" in capsys.readouterr().err
    assert main(["trace", "--prefix", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no pods recorded yet\n"

"""Lifecycle hooks: after the start and before the stop of a container."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from podwire.kubelet.pods.hooks import HookFailed, run_hook
from podwire.kubelet.probes import ExecResult, ProbeFailed, ProbeUnknown
from podwire.objects import pods
from podwire.objects.containers import ExecAction, Hook, HttpGet, HttpHeader, SleepAction, TcpSocket
from podwire.protocols.k8sapi.client_side import Reply

POD = pods.read(
    {
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [{"name": "app", "ports": [{"name": "http", "containerPort": 8080}]}]},
    }
)
WHERE = 'for Container "app" in Pod "web_default(u1)" failed - error:'


class Container:
    """A Prober with configured answers; None never comes."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    async def _answer(self, *question: Any) -> Any:
        self.asked.append(question)
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def exec(self, container_id: str, command: Sequence[str], seconds: float | None) -> ExecResult:
        return await self._answer(container_id, command, seconds)

    async def http(self, url: str, headers: Any, seconds: float | None) -> Reply:
        return await self._answer(url, list(headers))

    async def tcp(self, host: str, port: int, seconds: float | None) -> None:
        raise NotImplementedError

    async def grpc(self, host: str, port: int, service: str, seconds: float | None) -> int:
        raise NotImplementedError


async def run(hook: Hook, container: Container, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the door has it
    await run_hook(hook, POD, POD.spec.containers[0], "c1", ("10.1.2.3",), container, timeout)


async def failure(hook: Hook, container: Container, seconds: float | None = None) -> str:
    with pytest.raises(HookFailed) as raised:
        await run(hook, container, seconds)
    return str(raised.value)


EXEC = Hook(exec=ExecAction(command=("sh", "-c", "exit")))


async def test_a_command_is_run_in_the_container():
    container = Container(ExecResult(0, "done"))
    await run(EXEC, container, 20.0)
    assert container.asked == [("c1", ("sh", "-c", "exit"), 20.0)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(
            ExecResult(3, "no"),
            "command 'sh -c exit' exited with 3: , message: \"no\"",
            id="it exits with another code",
        ),
        pytest.param(ProbeFailed("too slow"), 'too slow, message: ""', id="it takes too long"),
        pytest.param(ProbeUnknown("no runtime"), 'no runtime, message: ""', id="nobody runs it"),
    ],
)
async def test_a_command_fails(answer, why):
    assert await failure(EXEC, Container(answer)) == f"Exec lifecycle hook ([sh -c exit]) {WHERE} {why}"


GET = Hook(http_get=HttpGet(port="http", path="/bye", http_headers=(HttpHeader(name="X", value="y"),)))


@pytest.mark.parametrize("status", [200, 302, 404, 500])
async def test_an_http_hook_succeeds_with_any_response(status):
    container = Container(Reply(status, {}, b""))
    await run(GET, container)
    headers = [("User-Agent", "kube-lifecycle/1.36"), ("Accept", "*/*"), ("X", "y")]
    assert container.asked == [("http://10.1.2.3:8080/bye", headers)]


async def test_an_http_hook_fails_without_a_connection():
    refused = 'Get "http://10.1.2.3:8080/bye": dial tcp 10.1.2.3:8080: connect: connection refused'
    assert await failure(GET, Container(ProbeFailed(refused))) == f"HTTP lifecycle hook (/bye) {WHERE} {refused}"
    result = await failure(Hook(http_get=HttpGet(port="none")), Container())
    assert result.startswith(f"HTTP lifecycle hook (/) {WHERE} couldn't find port")


async def test_a_sleep_passes():
    await run(Hook(sleep=SleepAction(seconds=0)), Container(), 20.0)


async def test_a_sleep_ends_with_the_grace():
    result = await failure(Hook(sleep=SleepAction(seconds=3600)), Container(), 0.01)
    assert result == f"Sleep lifecycle hook (3600) {WHERE} container terminated before sleep hook finished"


@pytest.mark.parametrize("hook", [EXEC, GET], ids=["exec", "httpGet"])
async def test_a_hook_that_hangs_ends_with_the_grace(hook):
    assert await failure(hook, Container(None), 0.01) == f"Lifecycle hook {WHERE} not finished within 0.01 s"


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        pytest.param(Hook(tcp_socket=TcpSocket(port=80)), "tcpSocket is deprecated and not supported", id="tcpSocket"),
        pytest.param(Hook(), "missing handler", id="nothing at all"),
    ],
)
async def test_an_unsupported_hook_is_rejected(hook, why):
    container = Container()
    assert (await failure(hook, container)).endswith(why)
    assert container.asked == []

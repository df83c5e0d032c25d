"""Runs a probe once and interprets the answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from podwire.kubelet.probes.ports import ProbeFailed, Prober, ProbeUnknown
from podwire.kubelet.probes.targets import PROBE_AGENT, headers_of, host_of, port_of, url_of
from podwire.objects.containers import Container, Probe
from podwire.protocols.k8sapi.client_side import Reply

SERVING = 1
_STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class Result:
    """`text` is the reason of a failure, or a warning about a probe that passed."""

    passed: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The container to probe."""

    container: Container
    container_id: str
    ips: Sequence[str]


async def check(probe: Probe, subject: Subject, prober: Prober) -> Result:
    """Raises ProbeUnknown when there is no result."""
    try:
        return await _run(probe, subject, prober)
    except ProbeFailed as error:
        return Result(passed=False, text=str(error))


async def _run(probe: Probe, subject: Subject, prober: Prober) -> Result:
    seconds, container = float(probe.timeout_seconds), subject.container
    if probe.exec is not None:
        done = await prober.exec(subject.container_id, probe.exec.command, seconds)
        return Result(passed=done.code == 0, text="" if done.code == 0 else done.output)
    if probe.http_get is not None:
        url = url_of(probe.http_get, container, subject.ips)
        return http_result(await prober.http(url, headers_of(probe.http_get, PROBE_AGENT), seconds))
    if probe.tcp_socket is not None:
        host = host_of(probe.tcp_socket.host, subject.ips)
        await prober.tcp(host, port_of(probe.tcp_socket.port, container), seconds)
        return Result(passed=True)
    if probe.grpc is not None:
        host, port = host_of("", subject.ips), port_of(probe.grpc.port, container)
        return grpc_result(await prober.grpc(host, port, probe.grpc.service or "", seconds))
    raise ProbeUnknown(f"missing probe handler for container {container.name}")


def http_result(reply: Reply) -> Result:
    """A redirect that was not followed passes."""
    if 200 <= reply.status < 300:
        return Result(passed=True)
    if 300 <= reply.status < 400:
        body = reply.body.decode("utf-8", "replace")
        return Result(passed=True, text=f"Probe terminated redirects, Response body: {body}")
    return Result(passed=False, text=f"HTTP probe failed with statuscode: {reply.status}")


def grpc_result(status: int) -> Result:
    if status == SERVING:
        return Result(passed=True)
    status_name = _STATUSES[status] if 0 <= status < len(_STATUSES) else str(status)
    return Result(passed=False, text=f'service unhealthy (responded with "{status_name}")')

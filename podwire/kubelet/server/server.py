"""The kubelet's server as one function from a request to its response: logs, exec, attach, port-forward, metrics.

    authorize the caller → route → find the container → respond

Errors are plain text, as the API server and curl expect them of a kubelet.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message

from podwire.interfaces import Clock
from podwire.kubelet.paths import KubeletPaths
from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.ports import Cri, PodLister
from podwire.kubelet.server import cadvisor, routes, targets
from podwire.kubelet.server.auth import Reviewer
from podwire.kubelet.server.limits import ServerLimits
from podwire.kubelet.server.log_lines import options_of
from podwire.kubelet.server.logs import Logs
from podwire.kubelet.server.metrics import KubeletMetrics
from podwire.kubelet.server.ports import Conversations
from podwire.kubelet.server.routes import Route, Target
from podwire.kubelet.server.statistics import Statistics
from podwire.kubelet.volumes.usage import MountedUsage
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import InvalidArgument, RpcError, Unavailable
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError, Reason, bad_request
from podwire.protocols.prometheus import CONTENT_TYPE
from podwire.protocols.streaming import portforward, spdy, upgrading
from podwire.protocols.streaming.channels import Channel
from podwire.protocols.streaming.dialects import PORT_PROTOCOLS
from podwire.tasks.backoff import Pauses

log = logging.getLogger(__name__)

OUR_RUNTIME = "podwire"
TEXT = "text/plain; charset=utf-8"
NOT_REACHABLE = "the container runtime of this node is not reachable; try again when it is back"

RequestT = TypeVar("RequestT", bound=Message)
OfferT = TypeVar("OfferT", pb.ExecResponse, pb.AttachResponse)
"""A response with the URL of a streaming server."""
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The node that is served."""

    node: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that /configz shows."""
    paths: KubeletPaths | None = None
    """The kubelet's directories, whose space /stats/summary shows."""
    mounted: Callable[[Pod], Awaitable[Mapping[str, MountedUsage]]] | None = None
    """Gives the usage of persistent and CSI volumes, by the name of the pod's volume."""


class KubeletServer:
    """`handle` answers every request. Must be closed."""

    def __init__(
        self,
        host: Host,
        pods: PodLister,
        cri: Cri,
        conversations: Conversations,
        reviewer: Reviewer,
        meter: KubeletMetrics,
        clock: Clock,
        limits: ServerLimits | None = None,
    ) -> None:
        self._limits = limits or ServerLimits()
        self._host = host
        self._lister = pods
        self._cri = cri
        self._conversations = conversations
        self._reviewer = reviewer
        self._meter = meter
        self._clock = clock
        self._logs = Logs(cri, self._limits)
        self._statistics = Statistics(host.node, pods, cri, self._limits, host.paths, host.mounted)
        self._answers: Mapping[str, Callable[[Request, Target], Awaitable[Answer]]] = {
            "logs": self._log,
            "exec": self._exec,
            "attach": self._attach,
            "port_forward": self._port_forward,
            "healthz": self._healthz,
            "pods": self._pods,
            "configz": self._configz,
            "metrics": self._metrics,
            "cadvisor": self._cadvisor,
            "probes": self._probes,
            "resources": self._resources,
            "summary": self._summary,
        }

    def close(self) -> None:
        self._logs.close()

    async def handle(self, request: Request) -> Answer:
        """The response to a request; errors are responses, too."""
        try:
            await self._reviewer.admit(request, routes.right_of(request))
            route: Route = routes.find(request)
            return await self._answers[route.answer](request, route.target)
        except ApiError as error:
            return Response(status=error.code, body=f"{error.message}\n".encode(), content_type=TEXT)

    def _pod(self, target: Target) -> tuple[Pod, ObservedPod]:
        known = self._lister.find(target.namespace, target.pod)
        if known is None or (target.uid and known[0].uid != target.uid):
            raise ApiError(Reason.NOT_FOUND, f'pod "{target.pod}" does not exist')
        return known

    async def _log(self, request: Request, target: Target) -> Answer:
        options = options_of(request, self._clock.wall())
        pod, observed = self._pod(target)
        status = targets.status_of(self._object(pod), target.container)
        container = targets.to_read(pod, observed, target.container, status, previous=options.previous)
        return Stream(chunks=await self._logs.read(container, options), content_type=TEXT)

    def _object(self, pod: Pod) -> Mapping[str, Any]:
        """The pod as clients should see it, with the newest status."""
        return next((object_ for other, object_ in self._lister.all() if other.uid == pod.uid), {})

    async def _exec(self, request: Request, target: Target) -> Answer:
        container = targets.to_enter(*self._pod(target), target.container)
        command = request.query.get("command", [])
        if not command:
            raise bad_request("you must specify at least 1 command")
        asked = pb.ExecRequest(container_id=container.id, cmd=command, **_streams(request))
        require_upgrade(request, "exec")
        return await self._retried(lambda: self._stream(methods.EXEC, asked, request))

    async def _attach(self, request: Request, target: Target) -> Answer:
        container = targets.to_enter(*self._pod(target), target.container)
        asked = pb.AttachRequest(container_id=container.id, **_streams(request))
        require_upgrade(request, "attach")
        return await self._retried(lambda: self._stream(methods.ATTACH, asked, request))

    async def _stream(self, method: Unary[RequestT, OfferT], asked: RequestT, request: Request) -> Answer:
        """A client of SPDY is passed through, since every runtime supports it.

        A WebSocket is forwarded to our own runtime as one, and to others as SPDY, which can signal the end of input.
        Another runtime may be started while this kubelet runs, so its name is asked for each time.
        """
        url = (await self._cri.call(method, asked, timeout=self._limits.call)).url
        if upgrading.wants_spdy(request.headers):
            return await self._conversations.tunnel(url, request)
        version = await self._cri.call(methods.VERSION, pb.VersionRequest(), timeout=self._limits.call)
        foreign = version.runtime_name != OUR_RUNTIME
        return await self._conversations.conversation(url, request, _channels(request) if foreign else ())

    async def _port_forward(self, request: Request, target: Target) -> Answer:
        """The runtime connects to the ports. With SPDY the client names them in its streams, else in the query."""
        sandbox = targets.to_reach(*self._pod(target))
        require_upgrade(request, "port-forward")
        in_spdy = upgrading.wants_spdy(request.headers) or upgrading.tunnelled(request.headers)
        asked = pb.PortForwardRequest(pod_sandbox_id=sandbox, port=() if in_spdy else _ports(request))

        async def forward() -> Answer:
            offered = await self._cri.call(methods.PORT_FORWARD, asked, timeout=self._limits.call)
            if in_spdy:
                return await self._conversations.tunnel(offered.url, request)
            return await self._conversations.conversation(offered.url, request, protocols=PORT_PROTOCOLS)

        return await self._retried(forward)

    async def _retried(self, work: Callable[[], Awaitable[ResponseT]]) -> ResponseT:
        """The result of work that starts nothing unless it reaches the runtime, which may be restarting. ApiError."""
        pauses, loop = Pauses(*self._limits.pauses), asyncio.get_running_loop()
        until = loop.time() + self._limits.reach
        while True:
            try:
                return await work()
            except InvalidArgument as error:
                raise bad_request(str(error)) from error
            except Unavailable as error:
                unreachable: Exception = error
            except RpcError as error:
                raise ApiError(Reason.INTERNAL_ERROR, f"container runtime error: {error}") from error
            except ApiError as error:  # its streaming server
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ECONNREFUSED:
                    raise
                unreachable = error
            pause = pauses.next()
            if loop.time() + pause > until:
                log.info("cannot reach the container runtime", extra={"error": str(unreachable)})
                raise ApiError(Reason.SERVICE_UNAVAILABLE, NOT_REACHABLE) from unreachable
            await asyncio.sleep(pause)

    async def _healthz(self, _request: Request, _target: Target) -> Answer:
        return Response(status=200, body=b"ok", content_type=TEXT)

    async def _pods(self, _request: Request, _target: Target) -> Answer:
        items = [{**object_, "apiVersion": "v1", "kind": "Pod"} for _, object_ in self._lister.all()]
        return _json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})

    async def _configz(self, _request: Request, _target: Target) -> Answer:
        return _json({"kubeletconfig": dict(self._host.settings)})

    async def _metrics(self, _request: Request, _target: Target) -> Answer:
        pods = (self._lister.find(pod.namespace, pod.name) for pod, _ in self._lister.all())
        observed = [pod[1] for pod in pods if pod is not None]
        return Response(status=200, body=self._meter.text(observed).encode(), content_type=CONTENT_TYPE)

    async def _cadvisor(self, _request: Request, _target: Target) -> Answer:
        async def of_runtime() -> Answer:
            timeout = self._limits.call
            listed = await self._cri.call(
                methods.LIST_METRIC_DESCRIPTORS, pb.ListMetricDescriptorsRequest(), timeout=timeout
            )
            metrics = await self._cri.call(
                methods.LIST_POD_SANDBOX_METRICS, pb.ListPodSandboxMetricsRequest(), timeout=timeout
            )
            body = await asyncio.to_thread(cadvisor.text, listed.descriptors, metrics.pod_metrics)
            return Response(status=200, body=body.encode(), content_type=CONTENT_TYPE)

        return await self._retried(of_runtime)

    async def _probes(self, _request: Request, _target: Target) -> Answer:
        text = self._meter.probes_text(pod for pod, _ in self._lister.all())
        return Response(status=200, body=text.encode(), content_type=CONTENT_TYPE)

    async def _resources(self, _request: Request, _target: Target) -> Answer:
        text = await self._retried(self._statistics.resources)
        return Response(status=200, body=text.encode(), content_type=CONTENT_TYPE)

    async def _summary(self, request: Request, _target: Target) -> Answer:
        brief = request.option("only_cpu_and_memory") in ("1", "true", "True")
        return _json(await self._retried(lambda: self._statistics.summary(only_cpu_and_memory=brief)))


def _streams(request: Request) -> dict[str, bool]:
    """Streams that a client requests, as fields of CRI's messages. Raises ApiError."""
    names = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
    streams = {name: request.option(option) in ("1", "true") for name, option in names.items()}
    if not (streams["stdin"] or streams["stdout"] or streams["stderr"]):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if streams["tty"]:
        streams["stderr"] = False  # a terminal has no stderr of its own, although some clients request it
    return streams


def _channels(request: Request) -> list[Channel]:
    """Channels that a runtime expects before it begins."""
    streams = _streams(request)
    opened = [Channel.ERROR]
    opened += [channel for channel in (Channel.STDIN, Channel.STDOUT, Channel.STDERR) if streams[channel.name.lower()]]
    return [*opened, Channel.RESIZE] if streams["tty"] else opened


def _ports(request: Request) -> tuple[int, ...]:
    try:
        return portforward.ports_of(request.query.get("port", []))
    except portforward.BadPorts as error:
        raise bad_request(str(error)) from error


def require_upgrade(request: Request, what: str) -> None:
    """Called after the request is validated, so that its errors are reported first."""
    if not (upgrading.wants_websocket(request.headers) or upgrading.wants_spdy(request.headers)):
        raise bad_request(f"{what} requires an upgrade to WebSocket or {spdy.PROTOCOL}")


def _json(value: object) -> Response:
    return Response(status=200, body=msgspec.json.encode(value))

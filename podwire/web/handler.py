"""Answers the requests of the page. Every request passes the gate first; nothing is changed unless actions are allowed.

| request | answer |
|---|---|
| `GET /`, `GET /page/NAME` | the files of the page |
| `GET /api/about` | what this page can show |
| `GET /api/events` | server-sent events: a snapshot, then changes |
| `GET /api/starts/POD[?hide=NAME…]` | a start: diagram, waterfall, phases, failures |
| `GET /api/starts/POD/call?id=…&row=…` | what a call carried |
| `GET /api/starts/POD/download?format=…` | a start as a file |
| `GET /api/flows[/NAME[?pod=…]]` | the flows, and one of them with the calls that satisfied it |
| `GET /api/compare?a=…&b=…` | two starts, or a flow (`a=flow:NAME`) and a start |
| `GET /api/nodes/NAME` | the node as a map |
| `GET /api/path?from=…&to=…&port=…` | the way of a packet |
| `GET /api/resources` | addresses, claims, devices, NRI plugins |
| `POST /api/actions/retry?pod=…` | the kubelet retries now |
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError
from podwire.trace.flow import FLOWS, load
from podwire.trace.pod_trace import PodTrace
from podwire.trace.record import Record, pod_id
from podwire.web.access import Gate, Refused
from podwire.web.assets import HEADERS, INDEX, Assets
from podwire.web.compare_view import compare_flow_view, compare_view
from podwire.web.downloads import FORMATS, download
from podwire.web.event_hub import EventHub, TooMany
from podwire.web.flow_view import flow_view
from podwire.web.host_views import CannotShow, HostViews
from podwire.web.live import Live
from podwire.web.start_view import call_view, start_view
from podwire.web.stored_traces import StoredTraces

Route = Callable[[Request, str], Awaitable[Answer]]
FLOW = "flow:"
"""The name of a comparison with a flow: `flow:pod`."""


class NotFound(Exception):
    """Says what does not exist."""


class PageHandler:
    """A Handler of transports/http_server."""

    def __init__(self, gate: Gate, hub: EventHub, live: Live, traces: StoredTraces, host: HostViews) -> None:
        self._gate, self._hub, self._live, self._traces, self._host = gate, hub, live, traces, host
        self._assets = Assets()
        self._routes: tuple[tuple[str, re.Pattern[str], Route], ...] = tuple(
            (method, re.compile(path), route)
            for method, path, route in (
                ("GET", r"/page/(?P<name>[\w.-]+)", self._asset),
                ("GET", r"/api/about", self._about),
                ("GET", r"/api/events", self._events),
                ("GET", r"/api/starts/(?P<name>[^/]+)", self._start),
                ("GET", r"/api/starts/(?P<name>[^/]+)/call", self._call),
                ("GET", r"/api/starts/(?P<name>[^/]+)/download", self._download),
                ("GET", r"/api/flows", self._flows),
                ("GET", r"/api/flows/(?P<name>[^/]+)", self._flow),
                ("GET", r"/api/compare", self._compare),
                ("GET", r"/api/nodes/(?P<name>[^/]+)", self._node),
                ("GET", r"/api/path", self._path),
                ("GET", r"/api/resources", self._resources),
                ("POST", r"/api/actions/(?P<name>[a-z]+)", self._act),
            )
        )

    async def __call__(self, request: Request) -> Answer:
        try:
            in_link = self._gate.check(request)
            request.trust()
            if request.path == "/":
                return self._index(request, in_link=in_link)
            return await self._routed(request)
        except Refused as error:
            return _error(error.status, str(error))
        except NotFound as error:
            return _error(404, str(error))
        except TooMany:
            return _error(503, "too many pages are open", ("Retry-After", "5"))
        except CannotShow as error:
            return _error(422, str(error))
        except (ApiError, ClientError) as error:
            return _error(502, f"the API server: {error}")

    def _index(self, request: Request, *, in_link: bool) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "only GET")
        answer = self._assets.answer(INDEX, *([("Set-Cookie", self._gate.cookie)] if in_link else []))
        assert answer is not None  # noqa: S101 - a file of ours
        return answer

    async def _routed(self, request: Request) -> Answer:
        methods = set()
        for method, pattern, route in self._routes:
            if (match := pattern.fullmatch(request.path)) is not None:
                if request.method == method or (request.method == "HEAD" and method == "GET"):
                    return await route(request, unquote(match.groupdict().get("name") or ""))
                methods.add(method)
        if methods:
            raise Refused(405, f"only {', '.join(sorted(methods))}")
        raise NotFound("no such page")

    async def _asset(self, _request: Request, name: str) -> Answer:
        answer = self._assets.answer(name)
        if answer is None:
            raise NotFound("no such file")
        return answer

    async def _about(self, _request: Request, _name: str) -> Answer:
        return _json({**self._host.about(), "flows": FLOWS, "formats": list(FORMATS), "records": self._traces.trouble})

    async def _events(self, _request: Request, _name: str) -> Answer:
        await self._traces.update()
        return Stream(chunks=self._hub.connect(self._live.snapshot), content_type="text/event-stream", headers=HEADERS)

    async def _start(self, request: Request, name: str) -> Answer:
        trace, _ = await self._traced(name)
        return _json(start_view(trace, request.query.get("hide", ())))

    async def _call(self, request: Request, name: str) -> Answer:
        trace, records = await self._traced(name)
        row = request.option("row")
        id_ = request.option("id")
        shown = call_view(
            records, trace, id_, int(row) if row.isdecimal() and len(row) < 9 else None, request.query.get("hide", ())
        )
        if shown is None:
            raise NotFound("this call is not recorded any more")
        return _json(shown)

    async def _download(self, request: Request, name: str) -> Answer:
        trace, records = await self._traced(name)
        form = request.option("format")
        if form not in FORMATS:
            raise NotFound(f"format must be one of {', '.join(FORMATS)}")
        body, kind, file = download(trace, records, form, request.query.get("hide", ()))
        disposition = ("Content-Disposition", f'attachment; filename="{file}"')
        return Response(status=200, body=body, content_type=kind, headers=(*HEADERS, disposition))

    async def _flows(self, _request: Request, _name: str) -> Answer:
        return _json([{"name": name, "participants": load(name).participants} for name in FLOWS])

    async def _flow(self, request: Request, name: str) -> Answer:
        if name not in FLOWS:
            raise NotFound(f"no flow of that name; there are {', '.join(FLOWS)}")
        await self._traces.update()
        last = self._traces.last()
        pod = request.option("pod") or (last.pod if last is not None else "")
        trace = (await self._traced(pod))[0] if pod else None
        return _json(flow_view(load(name), trace))

    async def _compare(self, request: Request, _name: str) -> Answer:
        first, second = request.option("a"), request.option("b")
        trace, _ = await self._traced(second)
        if first.startswith(FLOW):
            name = first.removeprefix(FLOW)
            if name not in FLOWS:
                raise NotFound(f"no flow of that name; there are {', '.join(FLOWS)}")
            return _json(compare_flow_view(trace, load(name)))
        return _json(compare_view((await self._traced(first))[0], trace))

    async def _node(self, _request: Request, name: str) -> Answer:
        return _json(await self._host.node_map(name))

    async def _path(self, request: Request, _name: str) -> Answer:
        words = (request.option("from"), request.option("to"), request.option("port"))
        return _json(await self._host.path(*words, request.option("protocol", "TCP")))

    async def _resources(self, _request: Request, _name: str) -> Answer:
        return _json(await self._host.resources())

    async def _act(self, request: Request, name: str) -> Answer:
        self._gate.check_action(request)
        return _json(await self._host.act(name, request.option("pod")))

    async def _traced(self, name: str) -> tuple[PodTrace, list[Record]]:
        """Returns the trace of a pod by its UID or trace id."""
        await self._traces.update()
        found = await self._traces.trace(pod_id(name))
        if found is None:
            raise NotFound("no start of this pod was recorded, or it is not stored any more")
        return found


def _json(value: Any) -> Response:
    return Response(status=200, body=msgspec.json.encode(value), headers=HEADERS)


def _error(status: int, why: str, *headers: tuple[str, str]) -> Response:
    body: Mapping[str, str] = {"error": why}
    return Response(status=status, body=msgspec.json.encode(body), headers=(*HEADERS, *headers))

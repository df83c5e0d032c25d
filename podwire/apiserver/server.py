"""The API server as one function from a request to its answer, in this order:

| step | who | refuses with |
|---|---|---|
| 1. authenticate, impersonate | identity/authentication.py | 401, 403 |
| 2. parse the path, find the resource and the verb | protocols/k8sapi/paths.py, registry.py | 400, 404, 405 |
| 2a. begin the audit, where it is configured; recorded when the answer ends | audit/ | |
| 3. authorize | identity/authorization.py | 403, before any 404 or 405 |
| 4. take a seat of the request's priority level (a watch: until it has its initial state) | flowcontrol/ | 429 |
| 5. run the verb within the deadline | request/verbs.py, subresources/, identity/reviews.py | 504 |
| 5a. reads: revision, selectors, pages | read/ | 410, 504 |
| 5b. writes: decode, default, admit, validate, policies, store | request/bodies.py, write/, admission/ | 4xx, 507 |
| 6. render in the negotiated form, add warnings | request/response.py, request/context.py | 406 |

An error at any step becomes a Status. Sockets are not known here: `transports/` carries requests in and answers out.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from podwire.apiserver import subresources
from podwire.apiserver.aggregation import Aggregator
from podwire.apiserver.audit import Audit, Entry
from podwire.apiserver.engine import Engine
from podwire.apiserver.flowcontrol import FlowControl, WatchLimit
from podwire.apiserver.flowcontrol.controller import Flow
from podwire.apiserver.flowcontrol.estimation import FINAL_SECONDS, WorkEstimator
from podwire.apiserver.flowcontrol.watches import CountedChunks, until
from podwire.apiserver.identity import reviews
from podwire.apiserver.identity.authorization import Attributes, forbidden
from podwire.apiserver.identity.impersonation import impersonated
from podwire.apiserver.identity.users import ANONYMOUS_USER, User
from podwire.apiserver.read import selection
from podwire.apiserver.request import context, negotiation
from podwire.apiserver.request.call import Call, boolean_option
from podwire.apiserver.request.encodings import encode_answer
from podwire.apiserver.request.endpoints import METRICS, Endpoints, page_not_found
from podwire.apiserver.request.negotiation import Encoding
from podwire.apiserver.request.request_metrics import RequestMetrics, level_lines
from podwire.apiserver.request.response import error_response, truncate_warnings, warning
from podwire.apiserver.request.verbs import VERBS, Verb
from podwire.apiserver.resource_metrics import verbs as resource_metrics
from podwire.apiserver.subresources import binding
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi import paths
from podwire.protocols.k8sapi.paths import BadPath, Target
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Stream, Tunnel, Upgrade
from podwire.protocols.k8sapi.status import (
    ApiError,
    Reason,
    bad_request,
    method_not_allowed,
    no_such_resource,
)
from podwire.protocols.prometheus import Metrics
from podwire.protocols.storage import Gone, StorageError, StoreFull, StoreUnavailable, TooLarge
from podwire.tasks.deadlines import Deadlines

_log = logging.getLogger("podwire.apiserver")


class ApiServer:
    """Answers every request; see `handle`."""

    def __init__(
        self,
        engine: Engine,
        endpoints: Endpoints,
        flow_control: FlowControl,
        audit: Audit | None = None,
        metrics: Metrics | None = None,
        aggregator: Aggregator | None = None,
    ) -> None:
        self._aggregator = aggregator
        self._engine = engine
        self._audit = audit
        self._endpoints = endpoints
        self._limits = engine.limits
        self._flow_control = flow_control
        self._watches = WatchLimit(self._limits.watches)
        self._deadlines = Deadlines(self._limits.seconds)
        self._work = WorkEstimator(engine.store, engine.clock)
        metrics = metrics or Metrics()
        self._meter = RequestMetrics(metrics, engine.clock)
        metrics.collect(lambda: level_lines(flow_control.seats.levels))

    async def handle(self, request: Request) -> Answer:
        """Returns the answer to a request; an error becomes a Status, never an exception."""
        notes, failed = _Notes(), False
        with self._meter.request(request) as measured, context.RequestContext() as facts:
            try:
                answer = await self._answer(request, notes)
            except ApiError as error:
                answer = notes.failed(error)
                if self._audit is not None and not notes.audited:  # refused before it was known what it is about
                    self._begin_audit(request, notes.caller, _attributes_of(request), notes)
            except StorageError as error:
                answer = notes.failed(_storage_error(error))
            except TimeoutError:
                message = f"Timeout: request did not complete within {self._limits.seconds:g}s"
                answer = notes.failed(ApiError(Reason.TIMEOUT, message))
            except Exception:  # noqa: BLE001 - the client gets a Status, the log gets the details
                _log.exception("request handler failed", extra={"method": request.method, "path": request.path})
                message = "Internal error occurred; the server's log has the details"
                answer, failed = notes.failed(ApiError(Reason.INTERNAL_ERROR, message)), True
            measured.answered(answer, notes.attributes)
        if facts.warnings:
            notes.headers += (("Warning", warning(text)) for text in truncate_warnings(facts.warnings))
        answer = with_headers(answer, notes.headers)
        if notes.audit is not None:
            notes.audit.annotate(facts.annotations)
            answer = notes.audit.answered(answer, failed=failed)
        encoding = negotiation.encoding(request.headers.get("accept", ""))
        return answer if encoding is Encoding.JSON or not notes.encodes else await encode_answer(answer, encoding)

    async def _answer(self, request: Request, notes: "_Notes") -> Answer:
        """Returns the answer; what else is known of the request goes into the notes."""
        identity = self._engine.identity
        caller = notes.caller = await identity.authenticator.authenticate(request)
        if caller is not ANONYMOUS_USER:
            request.trust()
        user = impersonated(caller, request.headers, identity.authorizer)
        try:
            target = paths.parse(request.path)
        except BadPath as error:
            raise bad_request(f"invalid request path: {error}") from error
        if target is None:
            notes.encodes = False
            return await self._endpoint(request, user, notes)
        if target.watch:
            request, target = as_watch(request, target)
        resource = self._engine.registry.find(target.group, target.version, target.resource)
        attributes, wrong_verb = _attributes(request, target)
        notes.attributes = _counted(resource, attributes)
        request = self._begin_audit(request, user, attributes, notes)
        self._authorize(user, attributes, notes)
        if wrong_verb is not None:
            raise wrong_verb  # only now: a user without permission gets 403, even if the request is otherwise invalid
        flow = self._flow_control.classify(user, attributes)
        notes.headers += flow.headers
        if resource is None:
            notes.encodes = False
            return await self._elsewhere(request, user, target)
        notes.encodes = attributes.subresource != "proxy"
        function = choose(resource, target, attributes.verb)
        call = Call(
            request=request,
            user=user,
            verb=attributes.verb,
            resource=resource,
            target=target,
            form=negotiation.form(
                request.headers.get("accept", ""), stored=resource.kind.verbs != ("create",), custom=resource.custom
            ),
        )
        if resource.warning:
            context.warn(resource.warning)
        if call.verb == "watch" or attributes.subresource == "proxy":
            return await self._long_running(function, call, flow, attributes)
        with self._deadlines.begin():
            if flow.level.spec.exempt:
                return await function(self._engine_of(call), call)
            return await self._run_with_seats(function, call, flow, attributes.name)

    async def _run_with_seats(self, function: Verb, call: Call, flow: Flow, name: str) -> Answer:
        """Runs a verb on seats of its priority level; a write that is sent to many watches keeps some for a moment."""
        level, seats = flow.level, self._flow_control.seats
        final = self._work.final_seats(call, level.widest)
        taken = final or await self._work.seats(call, name, level.widest)
        if not seats.take_free(level, taken):
            await seats.acquire(level, flow.flow, taken)
        try:
            return await function(self._engine_of(call), call)
        finally:
            if final:
                asyncio.get_running_loop().call_later(FINAL_SECONDS, seats.release, level, final)
            else:
                seats.release(level, taken)

    async def _long_running(self, function: Verb, call: Call, flow: Flow, attributes: Attributes) -> Answer:
        """Answers a watch: it has seats until its initial state is collected, and is counted until its end.

        A proxy takes as long as its backend; like upstream, it has neither a seat nor a deadline.
        """
        if call.verb != "watch":
            return await function(self._engine_of(call), call)
        user, name, seats = call.user.name, attributes.name, self._flow_control.seats
        scope = (call.resource.prefix, call.namespace, name)
        with contextlib.ExitStack() as undo:
            self._watches.add(user, exempt=flow.level.spec.exempt)
            undo.callback(self._watches.remove, user)
            self._work.add_watch(scope)
            undo.callback(self._work.remove_watch, scope)
            undo.callback(self._meter.watch_ended, self._meter.watch_began(call.request, attributes))
            taken = 1 if flow.level.spec.exempt else await self._work.seats(call, name, flow.level.widest)
            await seats.acquire(flow.level, flow.flow, taken)
            seat = undo.enter_context(contextlib.ExitStack())
            seat.callback(seats.release, flow.level, taken)
            answer = await function(self._engine_of(call), msgspec.structs.replace(call, initialized=seat.close))
            if isinstance(answer, Stream):
                chunks = answer.chunks
                if call.resource.custom:
                    gone = asyncio.Event()
                    undo.callback(self._engine.registry.on_removal(call.resource.kind, gone.set))
                    chunks = until(chunks, gone)
                answer = replace(answer, chunks=CountedChunks(chunks, undo.pop_all().close))
        return answer

    async def _elsewhere(self, request: Request, user: User, target: Target) -> Answer:
        """Answers a request for a resource that is not served here: by an aggregated server, else 404."""
        if self._aggregator and (service := self._aggregator.find(target.group, target.version)) is not None:
            return await self._aggregator.answer(service, request, user)
        registry = self._engine.registry
        if not registry.serves_group_version(target.group, target.version) and not registry.serves_built_in(
            target.group
        ):
            return page_not_found()
        raise no_such_resource()

    def _engine_of(self, call: Call) -> Engine:
        """Returns the engine of a request: one of its own if a webhook converts its objects."""
        converting = self._engine.converting
        if not converting or not call.resource.custom:
            return self._engine
        kind = call.resource.kind
        return converting.get((kind.group, kind.version, kind.resource), self._engine)

    async def _endpoint(self, request: Request, user: User, notes: "_Notes") -> Answer:
        """These take no seat: they wait only for a document that is being rendered, or that another server has."""
        attributes = Attributes(verb=request.method.lower(), path=request.path)
        request = self._begin_audit(request, user, attributes, notes)
        notes.headers += self._flow_control.classify(user, attributes).headers
        self._authorize(user, attributes, notes)
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if request.path == METRICS:
            for resource in self._engine.registry.resources:
                self._meter.objects(resource.kind, await self._work.count(resource.prefix))
        if self._aggregator and (service := self._aggregator.find_document(request.path)) is not None:
            return await self._aggregator.answer(service, request, user)
        return await self._endpoints.answer(request)

    def _authorize(self, user: User, attributes: Attributes, notes: "_Notes") -> None:
        decision = self._engine.identity.authorizer.check(user, attributes)
        if notes.audit is not None:
            notes.audit.authorized(allowed=decision.allowed, reason=decision.reason)
        if not decision.allowed:
            raise forbidden(user, attributes, decision.reason)

    def _begin_audit(self, request: Request, user: User | None, attributes: Attributes, notes: "_Notes") -> Request:
        """Begins the audit of a request; returns the request, whose body is recorded where the policy says so."""
        if self._audit is not None:
            notes.audited = True
            notes.audit = self._audit.begin(request, user, notes.caller, attributes)
        return request if notes.audit is None else notes.audit.reading(request)


class _Notes(msgspec.Struct, eq=False):
    """Facts about a request beside its answer: headers that the answer has in any case, its sender, its audit."""

    headers: list[tuple[str, str]] = []
    caller: User | None = None
    """The user before impersonation; None until it is authenticated."""
    audited: bool = False
    attributes: Attributes | None = None
    """Of a request for a resource that exists."""
    encodes: bool = True
    """The answer may be written in the encoding that the client prefers: it is ours, and not a document."""
    audit: Entry | None = None
    """None if the policy does not want it to be recorded."""

    def failed(self, error: ApiError) -> Response:
        """Returns the answer of an error, which is ours whatever the request was for."""
        self.encodes = True
        return error_response(error)


def _counted(resource: Resource | None, attributes: Attributes) -> Attributes | None:
    """Returns the attributes for metrics, whose labels are names that this server knows; None for others."""
    part = attributes.subresource
    return attributes if resource is not None and (not part or resource.kind.subresource(part)) else None


def _attributes(request: Request, target: Target) -> tuple[Attributes, ApiError | None]:
    """Returns what a request is about, and the error of a method that has no verb."""
    wrong: ApiError | None = None
    try:
        verb = verb_of(request, target)
    except ApiError as error:
        verb, wrong = "watch" if target.watch else request.method.lower(), error
    return attributes_of(request, target, verb), wrong


def _attributes_of(request: Request) -> Attributes:
    """Returns the attributes of a request that was not authenticated, for its audit only."""
    with contextlib.suppress(BadPath):
        if (target := paths.parse(request.path)) is not None:
            with contextlib.suppress(ApiError):
                request, target = as_watch(request, target) if target.watch else (request, target)
            return _attributes(request, target)[0]
    return Attributes(verb=request.method.lower(), path=request.path)


def as_watch(request: Request, target: Target) -> tuple[Request, Target]:
    """Returns the present form of a request whose URL has the old form of a watch; a name becomes a field selector."""
    query = {**request.query, "watch": ["true"]}
    if target.name:
        selector = request.option("fieldSelector")
        if selector and dict(selection.exact_fields(selector)).get("metadata.name") != target.name:
            raise bad_request("fieldSelector metadata.name doesn't match requested name")
        query["fieldSelector"] = [selector or f"metadata.name={target.name}"]
    itself = not _inside_namespace(target)
    present = msgspec.structs.replace(target, namespace="" if itself else target.namespace, name="")
    return msgspec.structs.replace(request, query=query), present


def attributes_of(request: Request, target: Target, verb: str) -> Attributes:
    """Returns what is to be authorized. A list or watch of one name counts as a request for that name."""
    name = target.name
    fields: tuple[tuple[str, str], ...] = ()
    if verb in _SELECTING and (selector := request.option("fieldSelector")):
        fields = selection.exact_fields(selector)
        if verb != "deletecollection":
            name = dict(fields).get("metadata.name", "")
    return Attributes(
        verb=verb,
        group=target.group,
        version=target.version,
        resource=target.resource,
        subresource=target.subresource.partition("/")[0],
        namespace=target.namespace,
        name=name,
        fields=fields,
    )


def with_headers(answer: Answer, headers: Sequence[tuple[str, str]]) -> Answer:
    """Adds headers to an answer; an upgrade has none of its own."""
    if type(answer) is Response:
        together = (*answer.headers, *headers)
        return Response(status=answer.status, body=answer.body, content_type=answer.content_type, headers=together)
    if not headers or isinstance(answer, Upgrade | Tunnel):
        return answer
    return replace(answer, headers=(*answer.headers, *headers))


_OWN_HANDLERS = {**reviews.REVIEWS, **resource_metrics.METRICS}
_SELECTING = ("list", "watch", "deletecollection")
_METHODS = {"GET": ("list", "get"), "POST": ("create", "create"), "DELETE": ("deletecollection", "delete")}
_NAMED_METHODS = {"PUT": "update", "PATCH": "patch"}
_PROXY_METHODS = {"HEAD": "get", "OPTIONS": ""}
"""Methods of proxies only. OPTIONS has no verb, as upstream: a role allows it with `*`."""


def verb_of(request: Request, target: Target) -> str:
    """Returns the verb of a method for a collection or for one name."""
    named = bool(target.name)
    if target.watch and request.method != "GET":
        raise method_not_allowed()
    if request.method in _METHODS:
        verb = _METHODS[request.method][named]
        return "watch" if verb == "list" and boolean_option(request, "watch") else verb
    if request.method in _NAMED_METHODS and named:
        return _NAMED_METHODS[request.method]
    if target.subresource.partition("/")[0] == "proxy" and request.method in _PROXY_METHODS:
        return _PROXY_METHODS[request.method]
    raise method_not_allowed()


def choose(resource: Resource, target: Target, verb: str) -> Verb:
    """Returns the handler; 404 and 405 where there is none."""
    kind = resource.kind
    asked = _OWN_HANDLERS.get((kind.group, kind.resource, target.subresource, verb))
    everywhere = kind.namespaced and not target.namespace
    if (not kind.namespaced and _inside_namespace(target)) or (everywhere and target.name):
        raise no_such_resource()
    if verb not in ("list", "watch") and everywhere:
        raise method_not_allowed()
    if target.subresource:
        return asked or _subresource(resource, target, verb)
    if asked:
        return asked
    if kind.resource == "bindings" and verb == "create":
        return binding.create
    if verb not in kind.verbs:
        raise method_not_allowed()
    if target.name and verb == "create":
        raise method_not_allowed()
    return VERBS[verb]


def _inside_namespace(target: Target) -> bool:
    """Returns whether a URL is inside a namespace.

    Permission to read a namespace must not reveal cluster-scoped objects: a node is not found there, whatever its name.
    Only a namespace itself is inside its own namespace.
    """
    itself = not target.group and target.resource == "namespaces" and target.namespace == target.name
    return bool(target.namespace) and not itself


def _subresource(resource: Resource, target: Target, verb: str) -> Verb:
    found = resource.kind.subresource(target.subresource.partition("/")[0])
    if found is None:
        raise no_such_resource()
    if verb not in found.verbs and found.name != "proxy":
        raise method_not_allowed()
    function = subresources.find(found.name, verb)
    if function is None:
        raise method_not_allowed()
    return function


def _storage_error(error: StorageError) -> ApiError:
    """Translates store errors that no verb handled."""
    if isinstance(error, StoreFull):
        return ApiError(Reason.INTERNAL_ERROR, f"the store is full, nothing was written: {error}", code=507)
    if isinstance(error, StoreUnavailable):
        return ApiError(
            Reason.SERVICE_UNAVAILABLE, f"the store does not answer: {error}", headers=(("Retry-After", "1"),)
        )
    if isinstance(error, Gone):
        return ApiError(Reason.EXPIRED, str(error))
    if isinstance(error, TooLarge):
        return ApiError(Reason.TOO_LARGE, f"Request entity too large: {error}")
    return ApiError(Reason.INTERNAL_ERROR, f"the store refused: {error}")

"""Translates requests for pod subresources to the kubelet's paths and query parameters. Pure."""

from urllib.parse import quote

from podwire.apiserver.ports import Query
from podwire.apiserver.request.call import boolean_option, integer_option
from podwire.kinds.stored import Object
from podwire.objects import times
from podwire.protocols.k8sapi.server_side import Request
from podwire.protocols.k8sapi.status import (
    FieldError,
    bad_request,
    forbidden,
    invalid,
    invalid_object,
    not_supported,
)

_STREAMS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
_LOG_STREAMS = ("All", "Stderr", "Stdout")


def passed_on(request: Request) -> Query:
    """Returns the query unchanged."""
    return [(name, value) for name, values in request.query.items() for value in values]


def for_pod(what: str, pod: Object, request: Request) -> tuple[str, Query]:
    """Returns the kubelet's path and query. Raises ApiError for requests that are invalid regardless of the kubelet."""
    place = "/".join(quote(pod["metadata"][field], safe="") for field in ("namespace", "name"))
    if what == "portforward":
        return f"/portForward/{place}", [("port", port) for port in request.query.get("ports", [])]
    query = _log_query(request) if what == "log" else _talk_query(what, request)
    container = quote(_container(pod, request.option("container")), safe="")
    return f"/{'containerLogs' if what == 'log' else what}/{place}/{container}", query


def _container(pod: Object, asked: str) -> str:
    """Returns the requested container, or the only one."""
    spec = pod["spec"]
    apps, inits, ephemeral = (
        [container["name"] for container in spec.get(kind) or ()]
        for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    name = pod["metadata"]["name"]
    if asked:
        if asked not in (*apps, *inits, *ephemeral):
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(apps) == 1:
        return str(apps[0])
    choices = f"choose one of: [{' '.join(apps)}]"
    if inits:
        choices += f" or one of the init containers: [{' '.join(inits)}]"
    raise bad_request(f"a container name must be specified for pod {name}, {choices}")


def _talk_query(what: str, request: Request) -> Query:
    """Returns the query of exec and attach."""
    query = [(there, "1") for here, there in _STREAMS if boolean_option(request, here)]
    if not query or query == [("tty", "1")]:
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if what == "exec":
        query += [("command", word) for word in request.query.get("command", [])]
    return query


def _log_query(request: Request) -> Query:
    errors: list[FieldError] = []
    query = [(name, "true") for name in ("follow", "previous", "timestamps") if boolean_option(request, name)]
    for name, least in (("tailLines", 0), ("sinceSeconds", 1), ("limitBytes", 1)):
        number = integer_option(request, name)
        if number is not None and number < least:
            text = "must be greater than 0" if least else "must be greater than or equal to 0"
            errors.append(invalid(name, number, text))
        elif number is not None:
            query.append((name, str(number)))
    moment, stream = request.option("sinceTime"), request.option("stream")
    if moment and request.option("sinceSeconds"):
        errors.append(forbidden("sinceTime", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if stream and stream not in _LOG_STREAMS:
        errors.append(not_supported("stream", stream, _LOG_STREAMS))
    elif stream not in ("", "All") and request.option("tailLines"):
        errors.append(forbidden("tailLines", "`tailLines` and specific `stream` are mutually exclusive for now"))
    if errors:
        raise invalid_object("PodLogOptions", "", errors)
    return [*query, *_moment(moment), *([("stream", stream)] if stream else [])]


def _moment(text: str) -> Query:
    if not text:
        return []
    try:
        times.parse(text)
    except ValueError as error:
        raise bad_request(str(error)) from error
    return [("sinceTime", text)]

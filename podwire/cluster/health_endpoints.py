"""The HTTP endpoints of a node component: /metrics, /healthz and /readyz."""

from collections.abc import Awaitable, Callable, Sequence

from podwire.linux.errors import LinuxError
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.protocols.prometheus import CONTENT_TYPE

TEXT = "text/plain; charset=utf-8"


async def answer_health(
    request: Request, metrics: Callable[[], Awaitable[str]], lacking: Callable[[], Sequence[str]]
) -> Response:
    """Answers a request: /metrics has the counters, /healthz whether the process lives, /readyz whether it can serve
    new pods."""
    match request.path:
        case "/metrics":
            return await _metrics(metrics)
        case "/healthz":
            return Response(status=200, body=b"ok", content_type=TEXT)
        case "/readyz":
            missing = lacking()
            body = ("\n".join(missing) or "ok").encode()
            return Response(status=503 if missing else 200, body=body, content_type=TEXT)
        case _:
            return Response(
                status=404, body=b"not found; the endpoints are /metrics, /healthz and /readyz", content_type=TEXT
            )


async def _metrics(metrics: Callable[[], Awaitable[str]]) -> Response:
    try:
        return Response(status=200, body=(await metrics()).encode(), content_type=CONTENT_TYPE)
    except LinuxError as error:
        return Response(status=500, body=str(error).encode(), content_type=TEXT)

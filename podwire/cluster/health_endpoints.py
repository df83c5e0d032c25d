"""What a participant that works on a node shows to operators by HTTP."""

from collections.abc import Awaitable, Callable, Sequence

from podwire.linux.errors import LinuxError
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.protocols.prometheus import CONTENT_TYPE

TEXT = "text/plain; charset=utf-8"


async def page(
    request: Request, metrics: Callable[[], Awaitable[str]], lacking: Callable[[], Sequence[str]]
) -> Response:
    """`/metrics` counts, `/healthz` says that the process lives, `/readyz` that new pods can be served."""
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
            return Response(status=404, body=b"not found: there are /metrics, /healthz and /readyz", content_type=TEXT)


async def _metrics(metrics: Callable[[], Awaitable[str]]) -> Response:
    try:
        return Response(status=200, body=(await metrics()).encode(), content_type=CONTENT_TYPE)
    except LinuxError as error:
        return Response(status=500, body=str(error).encode(), content_type=TEXT)

"""Sends one pod's story to a collector of OpenTelemetry."""

import asyncio
from collections.abc import Iterable

from podwire.cli.main import UserError
from podwire.trace.otlp import CONTENT_TYPE, encoded, rejected
from podwire.trace.otlp_endpoint import BadEndpoint, endpoint, shown
from podwire.trace.plain_text import cut, plain
from podwire.trace.pod_trace import PodTrace
from podwire.trace.record import Record
from podwire.trace.spans import spans
from podwire.transports.http_post import Posted, Unreachable, posting


def send(url: str, trace: PodTrace, records: Iterable[Record]) -> int:
    try:
        to = endpoint(url)
    except BadEndpoint as error:
        raise UserError(f"--otlp {error}") from error
    told = spans(records)
    try:
        posted = asyncio.run(_post(to, encoded(told)))
    except Unreachable as error:
        raise UserError(f"{shown(to)} takes nothing: {cut(plain(str(error)), 200)}") from error
    if not 200 <= posted.status < 300:
        raise UserError(f"{shown(to)} answers {posted.status}: {_first_line(posted.body)}")
    refused, why = rejected(posted.body)
    if refused:
        raise UserError(f"{shown(to)} refuses {refused} of {len(told)} spans: {cut(plain(why), 200)}")
    print(f"{len(told)} spans of trace {trace.pod} sent to {shown(to)}")
    return 0


async def _post(url: str, body: bytes) -> Posted:
    async with posting(url, CONTENT_TYPE) as post:
        return await post(body)


def _first_line(body: bytes) -> str:
    return cut(plain(body.decode("utf-8", "replace").partition("\n")[0]), 200) or "nothing"

"""Spans on their way to a collector that is there, gone, slow, full or hostile; nobody waits for it."""

import asyncio
import contextlib
import socket
import time
from dataclasses import replace

import msgspec
import pytest
from aiohttp import web

from podwire.cli.main import main
from podwire.cluster import tracing
from podwire.protocols.otlp import otlp_pb2 as pb
from podwire.trace import span_assembly
from podwire.trace.exporter import Exporter, Limits
from podwire.trace.otlp import CONTENT_TYPE
from podwire.trace.pod_trace import assigned
from podwire.trace.record import encode
from podwire.trace.segments import Writer
from podwire.transports.datagrams import Sender
from podwire.transports.http_post import MAX_ANSWER, Unreachable, posting
from tests.eventually import eventually_async

SOON = 60.0


class Collector:
    """One of OpenTelemetry, as far as spans go: takes what is posted, or answers as configured."""

    def __init__(self) -> None:
        self.requests: list[pb.ExportTraceServiceRequest] = []
        self.types: list[str] = []
        self.answers: list[web.StreamResponse] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(pb.ExportTraceServiceRequest.FromString(await request.read()))
        self.types.append(request.headers["Content-Type"])
        return self.answers.pop(0) if self.answers else web.Response(body=b"", content_type=CONTENT_TYPE)

    @property
    def spans(self) -> list[pb.Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextlib.asynccontextmanager
async def serving(handler, listener: socket.socket | None = None):
    application = web.Application(client_max_size=1 << 30)
    application.router.add_post("/v1/traces", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.SockSite(runner, listener) if listener else web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    finally:
        await runner.cleanup()


@pytest.fixture
def reserved():
    """A port where nobody listens, and nobody else can."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.fixture
def nowhere(reserved) -> str:
    return f"http://127.0.0.1:{reserved.getsockname()[1]}/v1/traces"


@pytest.fixture
async def collector():
    made = Collector()
    async with serving(made.take) as url:
        made.url = url
        yield made


QUICK = Limits(first_pause=0.01, spans=span_assembly.Limits(linger=0.01))


@contextlib.asynccontextmanager
async def exporting_to(url: str, limits: Limits = QUICK, seconds: float = 10.0):
    async with posting(url, CONTENT_TYPE, seconds=seconds) as post:
        made = Exporter(post, limits)
        running = asyncio.create_task(made.run())
        await asyncio.sleep(0)
        try:
            yield made
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def test_a_start_comes_to_the_collector_whole(collector, records):
    async with exporting_to(collector.url) as exporter:
        exporter.offer(assigned(records))
        await eventually_async(lambda: exporter.sent == 13)
    assert set(collector.types) == {"application/x-protobuf"}
    names = {span.name for span in collector.spans}
    assert {"pod default/web", "POST pods", "create pods", "RunPodSandbox", "ADD bridge", "crun run"} <= names
    assert {span.trace_id.hex() for span in collector.spans} == {records[14].pod}
    assert exporter.sent == len(collector.spans)
    assert exporter.dropped == 0


async def test_remaining_spans_are_sent_at_shutdown(collector, records):
    late = replace(QUICK, spans=span_assembly.Limits(linger=3600.0))
    async with exporting_to(collector.url, late) as exporter:
        exporter.offer(assigned(records))
    assert "RunPodSandbox" in {span.name for span in collector.spans}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_collector_that_wants_to_be_asked_again_is(status, collector, records):
    collector.answers = [web.Response(status=status, headers={"Retry-After": "0"})]
    async with exporting_to(collector.url) as exporter:
        exporter.offer(assigned(records))
        await eventually_async(lambda: exporter.sent)
    assert len(collector.requests) == 2
    assert exporter.dropped == 0


@pytest.mark.parametrize("status", [301, 400, 404, 413, 500])
async def test_rejected_spans_are_dropped_counted_and_logged(status, collector, records, caplog):
    collector.answers = [web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})]
    async with exporting_to(collector.url) as exporter:
        exporter.offer(assigned(records))
        await eventually_async(lambda: exporter.dropped)
    refused = len(collector.spans)
    assert exporter.dropped == refused
    [said] = [record for record in caplog.records if record.message == "dropped trace spans"]
    assert (said.spans, said.error) == (refused, f"the collector answers {status}")


async def test_partially_rejected_spans_are_counted(collector, records, caplog):
    answer = pb.ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "too \x1b[31mold"
    collector.answers = [web.Response(body=answer.SerializeToString())]
    async with exporting_to(collector.url) as exporter:
        exporter.offer(assigned(records))
        await eventually_async(lambda: exporter.sent)
    assert exporter.dropped == 2
    assert "\x1b" not in " ".join(str(record.error) for record in caplog.records if hasattr(record, "error"))


async def test_a_collector_that_starts_later_gets_the_queue(records, reserved, nowhere):
    made = Collector()
    async with exporting_to(nowhere) as exporter:
        exporter.offer(assigned(records))
        await eventually_async(lambda: exporter._queue)  # it was tried, in vain
        async with serving(made.take, reserved):
            await eventually_async(lambda: made.spans)
    assert "RunPodSandbox" in {span.name for span in made.spans}


async def test_without_a_collector_the_queue_is_bounded(records, nowhere, caplog):
    begun, ended = (record for record in records if record.method == "RunPodSandbox")
    async with exporting_to(nowhere, replace(QUICK, queue=100)) as exporter:
        for number in range(2000):
            pair = [msgspec.structs.replace(item, id=f"Kubelet-1.{number:x}") for item in (begun, ended)]
            exporter.offer(pair)
        await eventually_async(lambda: exporter.dropped)
        assert len(exporter._queue) <= 100 + QUICK.batch
    assert exporter.dropped >= 1900
    assert exporter.sent == 0
    assert "dropped trace spans" in caplog.text
    assert "cannot send spans to OTLP collector" in caplog.text


async def test_a_collector_that_never_answers_is_given_up(records):
    asked = asyncio.Event()

    async def silent(_request):
        asked.set()
        await asyncio.sleep(3600)

    async with serving(silent) as url, posting(url, CONTENT_TYPE, seconds=0.2) as post:
        with pytest.raises(Unreachable, match=r"no answer after 0\.2 s"):
            await post(b"")
    assert asked.is_set()


async def test_an_answer_without_end_is_not_waited_for():
    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65536)
        return response

    async with serving(endless) as url, posting(url, CONTENT_TYPE) as post:
        posted = await post(b"")
    assert len(posted.body) == MAX_ANSWER


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000])
async def test_a_server_without_http_is_unreachable(answer):
    async def talk(reader, writer):
        await reader.read(1)
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with posting(f"http://127.0.0.1:{port}/", CONTENT_TYPE) as post:
            with pytest.raises(Unreachable):
                await post(b"x")


async def test_invalid_records_are_tolerated(collector, records, caplog):
    strange = msgspec.structs.replace(records[14], detail=None)
    async with exporting_to(collector.url) as exporter:
        exporter.offer([strange])
        exporter.offer(assigned(records))
        await eventually_async(lambda: exporter.sent)
    assert exporter.dropped == 1


async def test_the_collector_exports_records_as_they_arrive(tmp_path, collector, records, appeared):
    options = tracing.CollectorOptions.below(tmp_path, otlp=collector.url)
    running = asyncio.create_task(tracing.collect(options))
    await appeared(options.socket)
    sender = Sender(options.socket)
    for record in records:
        sender.send(encode(record))
    await eventually_async(lambda: any(span.name == "RunPodSandbox" for span in collector.spans))
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_the_collector_does_not_wait_for_a_missing_otlp_collector(tmp_path, nowhere, records, appeared):
    options = tracing.CollectorOptions.below(tmp_path, otlp=nowhere)
    running = asyncio.create_task(tracing.collect(options))
    await appeared(options.socket)
    sender = Sender(options.socket)
    for record in records:
        sender.send(encode(record))
    await eventually_async(lambda: any(path.stat().st_size for path in options.directory.glob("*.jsonl")))
    begun = time.monotonic()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert time.monotonic() - begun < Limits().flush + SOON


# One story, from the command line.


@pytest.fixture
def kept(tmp_path, records):
    writer = Writer(tracing.CollectorOptions.below(tmp_path).directory)
    writer.write([encode(record) for record in records])
    writer.close()
    return tmp_path


async def test_one_trace_is_sent_on_request(collector, kept, capsys):
    assert await asyncio.to_thread(main, ["trace", "web", "--otlp", collector.url, "--prefix", str(kept)]) == 0
    assert capsys.readouterr().out == f"{len(collector.spans)} spans of trace {UID} sent to {collector.url}\n"
    assert len(collector.spans) == 13


UID = "3bba3e288f2d47ce8c5bf9d5d263d9fc"


async def test_a_failed_send_is_reported_in_one_line(collector, kept, capsys, nowhere):
    gone = nowhere.removesuffix("/v1/traces")
    assert await asyncio.to_thread(main, ["trace", "--last", "--otlp", gone, "--prefix", str(kept)]) == 1
    assert f"{gone}/v1/traces cannot be reached: " in capsys.readouterr().err
    collector.answers = [web.Response(status=403, text="no\x1b[2J\nmore")]
    assert await asyncio.to_thread(main, ["trace", "--last", "--otlp", collector.url, "--prefix", str(kept)]) == 1
    assert capsys.readouterr().err.endswith("answers 403: no\\x1b[2J\n")
    assert await asyncio.to_thread(main, ["trace", "--last", "--otlp", "nowhere", "--prefix", str(kept)]) == 1
    assert "--otlp 'nowhere' is not a collector URL; expected http://HOST[:PORT][/PATH]" in capsys.readouterr().err

"""Encodes spans for OTLP over HTTP: protobuf, one resource for each service and node. Pure."""

from collections import defaultdict
from collections.abc import Iterable

from google.protobuf.message import DecodeError

from podwire import __version__
from podwire.protocols.otlp import otlp_pb2 as pb
from podwire.trace.spans import ROOT, Span, Value

CONTENT_TYPE = "application/x-protobuf"
SCOPE = "podwire.trace"


def encoded(spans: Iterable[Span]) -> bytes:
    """An ExportTraceServiceRequest."""
    request = pb.ExportTraceServiceRequest()
    services: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in spans:
        services[span.service, span.node].append(span)
    for (service, node), own in services.items():
        about = {"service.name": service, "service.namespace": ROOT, "k8s.node.name": node}
        resource = request.resource_spans.add(resource=pb.Resource(attributes=_attributes(about.items())))
        scope = resource.scope_spans.add(scope=pb.InstrumentationScope(name=SCOPE, version=__version__))
        scope.spans.extend(map(_span, own))
    return request.SerializeToString()


def rejected(answer: bytes) -> tuple[int, str]:
    """Returns how many spans a collector rejected, and why; (0, "") for an answer that cannot be read."""
    try:
        partial = pb.ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return 0, ""
    return max(0, partial.rejected_spans), partial.error_message


def _span(span: Span) -> pb.Span:
    made = pb.Span(
        trace_id=bytes.fromhex(span.trace),
        span_id=bytes.fromhex(span.id),
        parent_span_id=bytes.fromhex(span.parent),
        name=_text(span.name),
        kind=pb.Span.SPAN_KIND_SERVER if span.parent else pb.Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=_nanoseconds(span.begin),
        end_time_unix_nano=_nanoseconds(span.end),
        attributes=_attributes(span.attributes),
        dropped_events_count=span.dropped_events,
        events=[
            pb.Span.Event(time_unix_nano=_nanoseconds(event.time), name=_text(event.name)) for event in span.events
        ],
    )
    if span.error:
        made.status.code = pb.Status.STATUS_CODE_ERROR
        made.status.message = _text(span.error)
    return made


def _attributes(values: Iterable[tuple[str, Value]]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=_value(value)) for key, value in values if value != ""]


def _value(value: Value) -> pb.AnyValue:
    return pb.AnyValue(int_value=value) if isinstance(value, int) else pb.AnyValue(string_value=_text(value))


def _text(text: str) -> str:
    """Protobuf rejects lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _nanoseconds(seconds: float) -> int:
    """The clock has microseconds; a float cannot hold more."""
    return round(seconds * 1e6) * 1000

"""The runtime that a plugin is connected to, as it tells of itself in Configure."""

from dataclasses import dataclass

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import told_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Times are in seconds; 0 where the runtime does not tell."""

    name: str = ""
    version: str = ""
    nri_version: str = ""
    """As it tells, or as is known of its release; empty when neither."""
    registration_timeout: float = 0.0
    request_timeout: float = 0.0
    """How long it waits for a hook."""


def told_by(request: pb.ConfigureRequest) -> Runtime:
    """Milliseconds become seconds."""
    return Runtime(
        name=request.runtime_name,
        version=request.runtime_version,
        nri_version=told_version(request),
        registration_timeout=request.registration_timeout / 1000,
        request_timeout=request.request_timeout / 1000,
    )

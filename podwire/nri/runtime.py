"""The runtime that a plugin is connected to, as its Configure describes it."""

from dataclasses import dataclass

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.events import told_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Times are in seconds; 0 where the runtime does not say."""

    name: str = ""
    version: str = ""
    nri_version: str = ""
    """From Configure, or known from its release; empty when neither."""
    registration_timeout: float = 0.0
    request_timeout: float = 0.0
    """Seconds that it waits for a hook to answer."""


def runtime_from(request: pb.ConfigureRequest) -> Runtime:
    """Converts milliseconds to seconds."""
    return Runtime(
        name=request.runtime_name,
        version=request.runtime_version,
        nri_version=told_version(request),
        registration_timeout=request.registration_timeout / 1000,
        request_timeout=request.request_timeout / 1000,
    )

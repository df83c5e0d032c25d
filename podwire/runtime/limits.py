"""Timeouts, intervals and sizes of the runtime. Times are seconds."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLimits:
    """All of it, with the defaults; tests pass their own."""

    undo: float = 30.0
    """Each step of an undo; the caller's own deadline may have passed already."""
    kill: float = 10.0
    """From SIGKILL to the end of a container or an exec."""

    # Shim and OCI runtime
    start: float = 60.0
    """`podwire-shim run`: from its start until the container runs or has failed."""
    delete: float = 10.0
    """`crun delete` of a container that has ended."""
    shim_request: float = 5.0
    """One request to the shim's socket."""
    exit_file: float = 5.0
    """From the end of a process until the shim has written its exit code: it drains the output first."""

    # CRI
    exec_output: int = 16 * MIB
    """Bytes of stdout and stderr of ExecSync together; a gRPC client takes no larger message."""
    queued_events: int = 1000
    """Events that a listener may be behind before its stream is ended; it lists again and listens again."""

    # Streaming
    stream_url: float = 60.0
    """The validity of a URL of Exec, Attach or PortForward."""
    stream_urls: int = 1000
    """URLs that may wait for their client."""
    stream_pair: float = 30.0
    """From the first SPDY stream of a forwarded connection to the second."""
    port_close: float = 30.0
    """For a port to take what was sent to it last."""
    port_queue: int = 64
    """Chunks that may wait for a port that reads slowly; then the client's whole connection waits."""

"""Commands inside containers: run to their end for probes (ExecSync), or offered as a conversation (Exec)."""

import asyncio
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from podwire.linux import processes
from podwire.linux.errors import DeadlinePassed, LinuxError, TooMuchOutput
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    ResourceExhausted,
)
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Upgrade
from podwire.protocols.streaming.remote_command import Streams
from podwire.runtime.bundles import Bundles
from podwire.runtime.containers import Container
from podwire.runtime.conversations import Conversation
from podwire.runtime.ports import Output
from podwire.runtime.shims import Shims
from podwire.seams import Clock

OUTPUT_BYTES = 16 * 1024 * 1024
FOR_EVER = 24 * 3600.0
"""A probe without a time-out may take this long; the caller's own deadline usually ends it sooner."""

OFFER_SECONDS = 60.0
OFFERS = 1000
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


@dataclass(frozen=True, slots=True)
class _Offer:
    container: Container
    command: list[str]
    streams: Streams
    until: float


class Executions:
    """Runs commands, and keeps what was offered until somebody comes for it; each offer is taken once."""

    def __init__(self, shims: Shims, bundles: Bundles, clock: Clock) -> None:
        self._shims = shims
        self._bundles = bundles
        self._clock = clock
        self._offers: dict[str, _Offer] = {}
        self.base_url = ""

    async def run(self, container: Container, command: list[str], seconds: float) -> Output:
        """ExecSync."""
        _check(container, command)
        work = self._bundles.home(container.id) / f"exec-{secrets.token_hex(8)}"
        await asyncio.to_thread(self._prepare, work, container, command, tty=False)
        try:
            return await asyncio.to_thread(self._run, work, container, seconds or FOR_EVER)
        finally:
            await asyncio.to_thread(_clear, work)

    def _prepare(self, work: Path, container: Container, command: list[str], *, tty: bool) -> None:
        """What the OCI runtime is told: the container's own process with another command line."""
        spec = msgspec.json.decode((self._bundles.home(container.id) / "config.json").read_bytes())
        process: dict[str, Any] = {**spec["process"], "args": command, "terminal": tty}
        work.mkdir(mode=0o700)
        (work / "process.json").write_bytes(msgspec.json.encode(process))

    def _run(self, work: Path, container: Container, seconds: float) -> Output:
        argv = self.argv(work, container)
        try:
            done = processes.run(argv, env=self._shims.environment, deadline=seconds, limit=OUTPUT_BYTES)
        except DeadlinePassed as error:
            _kill(work / "pid")
            raise DeadlineExceeded(f"the command did not end within {seconds:g} s") from error
        except TooMuchOutput as error:
            _kill(work / "pid")
            raise ResourceExhausted(f"the command said more than {OUTPUT_BYTES} bytes") from error
        except LinuxError as error:
            raise Internal(f"the command cannot be run: {error}") from error
        return Output(done.code if done.code >= 0 else 128 - done.code, done.stdout, done.stderr)

    def argv(self, work: Path, container: Container) -> list[str]:
        doors = self._bundles.cgroups.doors(self._bundles.cgroup(container.id))
        return self._shims.exec_argv(container.id, work / "process.json", work / "pid", doors)

    def offer(self, container: Container, request: pb.ExecRequest) -> str:
        """Exec: a URL that is good for one conversation within a minute."""
        _check(container, list(request.cmd))
        if request.tty and request.stderr:
            raise InvalidArgument("tty and stderr: a terminal has no stderr of its own")
        if not (request.stdin or request.stdout or request.stderr):
            raise InvalidArgument("one of stdin, stdout or stderr must be set")
        now = self._clock.monotonic()
        self._offers = {key: each for key, each in self._offers.items() if each.until > now}
        if len(self._offers) >= OFFERS:
            raise ResourceExhausted(f"{OFFERS} conversations are waiting already")
        token = secrets.token_urlsafe(16)
        streams = Streams(stdin=request.stdin, stdout=request.stdout, stderr=request.stderr, tty=request.tty)
        self._offers[token] = _Offer(container, list(request.cmd), streams, now + OFFER_SECONDS)
        return f"{self.base_url}/exec/{token}"

    async def handle(self, request: Request) -> Answer:
        """The streaming server: one URL, one conversation."""
        _, _, token = request.path.rpartition("/exec/")
        offer = self._offers.pop(token, None)
        if offer is None or offer.until < self._clock.monotonic():
            return Response(status=404, body=b"no such conversation\n", content_type="text/plain")
        if "websocket" not in request.headers.get("upgrade", "").lower():
            why = b"only WebSocket (v5.channel.k8s.io, v4.channel.k8s.io) is spoken here, not SPDY\n"
            return Response(status=400, body=why, content_type="text/plain")
        work = self._bundles.home(offer.container.id) / f"exec-{secrets.token_hex(8)}"
        await asyncio.to_thread(self._prepare, work, offer.container, offer.command, tty=offer.streams.tty)
        argv = self.argv(work, offer.container)
        conversation = Conversation(argv, self._shims.environment, offer.streams, lambda: _clear_killed(work))
        return Upgrade(protocols=PROTOCOLS, run=conversation.run)


def _check(container: Container, command: list[str]) -> None:
    if not command:
        raise InvalidArgument("cmd: must be given")
    if not container.running:
        raise FailedPrecondition(f"container {container.id} is not running")


def _kill(pid_file: Path) -> None:
    """Kill the process that a command became in the container; the OCI runtime leaves its number in a file."""
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
        pidfd = processes.open_process(pid, processes.start_time(pid))
    except (OSError, ValueError):
        return
    try:
        processes.send_signal(pidfd, signal.SIGKILL)
    finally:
        os.close(pidfd)


def _clear_killed(work: Path) -> None:
    _kill(work / "pid")
    _clear(work)


def _clear(work: Path) -> None:
    for each in work.glob("*"):
        each.unlink(missing_ok=True)
    work.rmdir()

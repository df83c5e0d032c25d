"""Collects what recorders send and stores a bounded part of it.

The collector stays out of the way of the components that it records: it debounces what arrives at its socket and
decodes records only when a burst is over, so that this work falls behind the work that is being recorded.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.trace.digest import digested
from podwire.trace.loss_log import LossLog
from podwire.trace.pods import About, Pods
from podwire.trace.record import Record, decode, encode
from podwire.trace.segments import LIMIT, Reader, Writer
from podwire.transports.datagrams import Receiver

_log = logging.getLogger("podwire.trace")


@dataclass(frozen=True, slots=True)
class Limits:
    poll: float = 0.1
    """Seconds between two reads of the socket. A read that returns nothing ends a burst; the start of a pod is one."""
    burst: float = 0.5
    """Seconds for which records are buffered at most, while a burst does not end."""


class Collector:
    """Stores what arrives at a socket."""

    def __init__(self, directory: Path, *, limit: int = LIMIT, limits: Limits | None = None) -> None:
        """`limit` bounds the bytes of all stored records."""
        self._pods = Pods()
        reader = Reader(directory)
        for record in reader.more():  # calls that began before a restart are still known
            _remember(self._pods, record)
        for trouble in reader.troubles():
            _log.warning("cannot read stored trace records", extra={"error": trouble})
        self._writer = Writer(directory, limit)
        self._limits = limits or Limits()
        self._lost = LossLog(_log, "trace records were lost", "records")
        self._rejected = LossLog(_log, "trace datagrams were rejected", "datagrams")
        self._subscriber: Callable[[Sequence[Record]], None] | None = None

    def subscribe(self, subscriber: Callable[[Sequence[Record]], None]) -> None:
        """Sets a function that receives all records from now on; it must return at once."""
        self._subscriber = subscriber

    async def run(self, receiver: Receiver) -> None:
        """Works until cancelled; what has arrived by then is still written."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        burst: list[bytes] = []
        try:
            while True:
                woken.clear()
                loop.add_reader(receiver.fileno(), woken.set)
                try:
                    await woken.wait()
                finally:
                    loop.remove_reader(receiver.fileno())
                await self._read_burst(receiver, burst)
                self.take(burst)
                burst.clear()
                receiver.confirm_flush()
        finally:
            self.take([*burst, *receiver.waiting()])
            self._writer.close()
            for loss_log in (self._lost, self._rejected):
                loss_log.report()

    async def _read_burst(self, receiver: Receiver, burst: list[bytes]) -> None:
        """Reads until a burst is over, or a reader waits; the socket buffer never fills meanwhile."""
        for _ in range(round(self._limits.burst / self._limits.poll)):
            await asyncio.sleep(self._limits.poll)
            before = len(burst)
            burst.extend(receiver.waiting())
            if len(burst) == before or receiver.flush_requested:
                return

    def take(self, datagrams: Iterable[bytes]) -> None:
        """Stores datagrams. When the disk is full they are lost, which is logged."""
        records = list(self._records(datagrams))
        lines = [encode(record) for record in records]
        if self._subscriber is not None:
            self._subscriber(records)
        try:
            self._writer.write(lines)
        except OSError as error:
            self._lost.add(len(lines), str(error))

    def _records(self, datagrams: Iterable[bytes]) -> Iterator[Record]:
        for datagram in datagrams:
            try:
                yield digested(decode(datagram), self._pods)
            except Exception as error:  # noqa: BLE001 - one bad datagram must not stop the others
                self._rejected.add(1, str(error))


def _remember(pods: Pods, record: Record) -> None:
    if record.pod is None or not isinstance(record.detail, dict):
        return
    messages = [record.detail.get("request"), record.detail.get("response")]
    ids = tuple(
        message[name]
        for message in messages
        if isinstance(message, dict)
        for name in ("pod_sandbox_id", "container_id")
        if isinstance(message.get(name), str)
    )
    about = About(
        uid=record.pod,
        namespace=record.detail.get("namespace", ""),
        name=record.detail.get("name", ""),
        ids=ids,
    )
    pods.resolve("" if record.is_event else record.id, about)

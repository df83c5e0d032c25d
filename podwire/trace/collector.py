"""Collects what recorders send and keeps a bounded part of it.

It lets the participants work: what they send is taken in beats, and the work of making records waits until they are
quiet, so that it falls behind the work that is recorded.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from podwire.trace.digest import digested
from podwire.trace.loss_log import Losses
from podwire.trace.pods import About, Pods
from podwire.trace.record import Record, decode, encode
from podwire.trace.segments import LIMIT, Reader, Writer
from podwire.transports.datagrams import Receiver

_log = logging.getLogger("podwire.trace")

BEAT = 0.1
"""Seconds between two looks at what was sent: one that finds nothing ends a burst, and the start of a pod is one."""
PATIENCE = 0.5
"""Seconds that records wait at most, while there is no end to a burst."""


class Collector:
    """Writes down what comes in at a socket."""

    def __init__(self, directory: Path, *, limit: int = LIMIT, keep_secrets: bool = False) -> None:
        """`limit` bounds the bytes of everything that is kept."""
        self._pods = Pods()
        reader = Reader(directory)
        for record in reader.more():  # so that what began before a restart is still known
            _remember(self._pods, record)
        for trouble in reader.troubles():
            _log.warning("records of before are lost", extra={"reason": trouble})
        self._writer = Writer(directory, limit)
        self._keep_secrets = keep_secrets
        self._lost = Losses(_log, "records are lost", "records")
        self._strange = Losses(_log, "a datagram is no record", "datagrams")
        self._also: Callable[[Sequence[Record]], None] | None = None

    def tell(self, also: Callable[[Sequence[Record]], None]) -> None:
        """Somebody else who is told of all records from now on, and returns at once."""
        self._also = also

    async def run(self, receiver: Receiver) -> None:
        """Work until cancelled; what waits at that moment is still written."""
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
                await self._burst(receiver, burst)
                self.take(burst)
                burst.clear()
                receiver.answer()
        finally:
            self.take([*burst, *receiver.waiting()])
            self._writer.close()
            for loss_log in (self._lost, self._strange):
                loss_log.say()

    async def _burst(self, receiver: Receiver, burst: list[bytes]) -> None:
        """Everything until it is quiet, or somebody wants to read; nothing waits where it could be lost for want of
        room."""
        for _ in range(round(PATIENCE / BEAT)):
            await asyncio.sleep(BEAT)
            before = len(burst)
            burst.extend(receiver.waiting())
            if len(burst) == before or receiver.asked:
                return

    def take(self, datagrams: Iterable[bytes]) -> None:
        """Write these down. A disk that is full loses them, and says so."""
        records = list(self._records(datagrams))
        lines = [encode(record) for record in records]
        if self._also is not None:
            self._also(records)
        try:
            self._writer.write(lines)
        except OSError as error:
            self._lost.add(len(lines), str(error))

    def _records(self, datagrams: Iterable[bytes]) -> Iterator[Record]:
        for datagram in datagrams:
            try:
                yield digested(decode(datagram), self._pods, keep_secrets=self._keep_secrets)
            except Exception as error:  # noqa: BLE001 - whatever somebody sent, the others are heard
                self._strange.add(1, str(error))


def _remember(pods: Pods, record: Record) -> None:
    if record.pod is None or not isinstance(record.detail, dict):
        return
    told = [record.detail.get("request"), record.detail.get("response")]
    ids = tuple(
        message[name]
        for message in told
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

"""Reports damaged records of the kubelet: to its log, as an Event of the Node, and as a metric.

A damaged record is quarantined and repaired from the API and the runtime; pods that it does not concern go on. Somebody
should still learn that a disk or a person damages files.
"""

import asyncio
import logging
from collections.abc import Callable

from podwire.durable.records import Problem
from podwire.protocols.k8sapi.client_side.events import WARNING

log = logging.getLogger(__name__)

REASON = "DamagedState"


class DamagedState:
    """`report` may be called in any thread. Each file is reported once."""

    def __init__(self, record: Callable[[str, str, str], None], count: Callable[[], None]) -> None:
        """`record` records an event about the node: type, reason and message."""
        self._record = record
        self._count = count
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reported: set[str] = set()

    def start(self) -> None:
        """From now on there is an event loop, in which events are recorded."""
        self._loop = asyncio.get_running_loop()

    def report(self, problem: Problem) -> None:
        if problem.kind == "foreign":
            log.info("ignored file that is not a record", extra={"path": problem.path})
            return
        fields = {"path": problem.path, "error": problem.error, "kind": problem.kind}
        log.error("record of the kubelet is damaged", extra=fields)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell, problem)

    def _tell(self, problem: Problem) -> None:
        if problem.path not in self._reported:
            self._reported.add(problem.path)
            self._count()
            self._record(WARNING, REASON, f"a record of the kubelet is {problem.kind}: {problem.path}: {problem.error}")

"""Asks kubelets for their usage, when somebody asks for it: nothing is polled, and one pair of readings is kept."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from podwire.apiserver.ports import Kubelet, Kubelets
from podwire.apiserver.resource_metrics import samples
from podwire.apiserver.resource_metrics.samples import Key, Reading
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.server_side import Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError

_log = logging.getLogger("podwire.apiserver.resource_metrics")

PATH = "/metrics/resource"
MOST_BYTES = 32 * 1024 * 1024
_ASK = Request(method="GET", path=PATH)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerLimits:
    """Seconds, where not said otherwise."""

    resolution: float = 5.0
    """A kubelet is not asked again before this time."""
    longest: float = 120.0
    """An earlier reading that is older than this says nothing of the present."""
    first_window: float = 1.0
    """Between the two readings of a first request."""
    answer: float = 10.0
    """For the answer of a kubelet."""
    at_once: int = 16
    """Kubelets that are asked at the same time."""


@dataclass(slots=True)
class _Node:
    """The two last readings of a node."""

    before: Mapping[Key, Reading] = field(default_factory=dict)
    now: Mapping[Key, Reading] = field(default_factory=dict)
    read_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class UsageSampler:
    def __init__(self, kubelets: Kubelets | None, clock: Clock, limits: SamplerLimits | None = None) -> None:
        self._kubelets = kubelets
        self._clock = clock
        self._limits = limits or SamplerLimits()
        self._nodes: dict[str, _Node] = {}
        self._turns = asyncio.Semaphore(self._limits.at_once)

    @property
    def reaches_kubelets(self) -> bool:
        return self._kubelets is not None

    def keep(self, names: Iterable[str]) -> None:
        """Forgets nodes that no longer exist."""
        for name in self._nodes.keys() - set(names):
            del self._nodes[name]

    async def read(self, kubelets: Iterable[Kubelet]) -> None:
        """Reads the usage of these nodes, unless it is known; a node that does not answer has no usage."""
        async with asyncio.TaskGroup() as group:
            for kubelet in kubelets:
                group.create_task(self._read(kubelet))

    def usage(self, node: str, key: Key) -> samples.Usage | None:
        """Returns the usage of a container, or of the node itself, as it was read last."""
        known = self._nodes.get(node)
        return samples.usage(known.before, known.now, key) if known is not None else None

    def containers(self, node: str) -> Iterable[Key]:
        known = self._nodes.get(node)
        return known.now.keys() if known is not None else ()

    async def _read(self, kubelet: Kubelet) -> None:
        node = self._nodes.setdefault(kubelet.node, _Node())
        async with node.lock, self._turns:
            age = self._clock.monotonic() - node.read_at
            if age < self._limits.resolution:
                return
            try:
                before = node.now
                if age > self._limits.longest:
                    before = await self._ask(kubelet)
                    await asyncio.sleep(self._limits.first_window)
                node.before, node.now = before, await self._ask(kubelet)
            except (ApiError, TimeoutError, ValueError) as error:
                _log.warning(
                    "cannot read usage of node", extra={"node": kubelet.node, "error": str(error) or "timeout"}
                )
                node.before, node.now = {}, {}
            node.read_at = self._clock.monotonic()

    async def _ask(self, kubelet: Kubelet) -> dict[Key, Reading]:
        """Raises ApiError, TimeoutError, ValueError."""
        if self._kubelets is None:
            raise ValueError("this API server has no connection to kubelets")
        async with asyncio.timeout(self._limits.answer):
            answer = await self._kubelets.connect(kubelet, PATH, (), _ASK)
            if isinstance(answer, Stream):
                body = bytearray()
                async for chunk in answer.chunks:
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise ValueError(f"more than {MOST_BYTES} bytes")
                return samples.parse(body.decode("utf-8", "replace"), self._clock.wall())
        if isinstance(answer, Response) and answer.status == 200:
            return samples.parse(answer.body.decode("utf-8", "replace"), self._clock.wall())
        reason = answer.body.decode("utf-8", "replace").strip() if isinstance(answer, Response) else "an upgrade"
        raise ValueError(f"the kubelet answers {reason}")

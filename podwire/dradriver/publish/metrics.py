"""Prometheus metrics of the driver, and the wrappers through which methods of other objects are measured and traced.

The hooks and the classes that do the work contain no metrics and no traces: `observe` wraps methods of the objects that
driver.py puts together.
"""

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

from podwire.protocols.prometheus import Histogram, Samples, family, timings

PREFIX = "podwire_network_driver"
BOUNDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0)

Observer = Callable[..., AbstractContextManager[object]]
"""Called with the arguments of the observed method; the context is entered around the call."""


class Meter:
    """Counts requests of kubelets and runtimes, and measures the phases that they consist of."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` returns monotonic seconds."""
        self._now = now
        self._requests: Counter[tuple[str, str]] = Counter()
        self._phases: dict[str, Histogram] = {}

    def count(self, method: str, ok: bool) -> None:
        """Counts one claim or one pod of a request."""
        self._requests[method, "ok" if ok else "error"] += 1

    @contextlib.contextmanager
    def counted(self, method: str) -> Iterator[None]:
        """Counts a call, by whether it raises."""
        try:
            yield
        except Exception:
            self.count(method, False)
            raise
        self.count(method, True)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = self._now()
        try:
            yield
        finally:
            self._phases.setdefault(name, Histogram(BOUNDS)).observe(self._now() - begun)

    def text(self, gauges: Mapping[str, tuple[str, Samples]]) -> str:
        """All metrics. `gauges` has the help text and the samples by name."""
        counted = (((("method", method), ("status", status)), n) for (method, status), n in self._requests.items())
        lines = [*family(f"{PREFIX}_requests_total", "Claims and pods, by call and how it ended", counted)]
        lines += timings(f"{PREFIX}_phase_duration_seconds", "How long each phase took", "phase", self._phases)
        for name, (meaning, samples) in gauges.items():
            lines += family(f"{PREFIX}_{name}", meaning, samples)
        return "\n".join(lines) + "\n"


def observe(target: object, method: str, *observers: Observer) -> None:
    """Wraps a method of this one object, synchronous or not; the first observer is the outermost."""
    call = getattr(target, method)

    def entered(args: tuple[Any, ...]) -> contextlib.ExitStack:
        with contextlib.ExitStack() as stack:
            for observer in observers:
                stack.enter_context(observer(*args))
            return stack.pop_all()

    if inspect.iscoroutinefunction(call):

        @wraps(call)
        async def observed_async(*args: Any, **kwargs: Any) -> Any:
            with entered(args):
                return await call(*args, **kwargs)

        setattr(target, method, observed_async)
        return

    @wraps(call)
    def observed(*args: Any, **kwargs: Any) -> Any:
        with entered(args):
            return call(*args, **kwargs)

    setattr(target, method, observed)

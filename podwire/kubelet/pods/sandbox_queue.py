"""Pods whose sandbox could not be created, in the order of their failures: which of them tries next when one is freed.

A sandbox that is stopped may free what another pod waits for: an address, a host port, a device. If all waiting pods
tried again, all but one would fail, each at the cost of a whole sandbox. So the first in the queue tries; if it
succeeds, or cannot use the chance, the next one does, until `ATTEMPTS` of them have failed. A pod that fails goes to
the end of the queue, and still has its own back-off.
"""

from collections.abc import Callable

ATTEMPTS = 2
"""Failed attempts for each freed sandbox: the first in the queue may fail for a reason of its own."""


class SandboxQueue:
    """`retry` wakes the worker of a pod and lets it create its sandbox at once."""

    def __init__(self, retry: Callable[[str], None]) -> None:
        self._retry = retry
        self._waiting: dict[str, None] = {}
        self._chances: dict[str, int] = {}
        """By uid of a pod that was woken: how many attempts may fail."""
        self._freed = 0
        self._begun: dict[str, int] = {}
        """By uid of a pod that creates its sandbox: how many were freed before."""

    def begin(self, uid: str) -> None:
        """The sandbox of a pod is about to be created."""
        self._begun[uid] = self._freed

    def failed(self, uid: str) -> bool:
        """Returns whether a sandbox was freed during the attempt: then the pod may try again at once."""
        chance = self._chances.pop(uid, 0)
        missed = self._begun.pop(uid, self._freed) != self._freed
        if chance:
            self._waiting.pop(uid, None)  # to the end
        self._waiting.setdefault(uid)
        if chance > 1 and not missed:
            self._next(chance - 1)
        return missed

    def unused(self, uid: str) -> None:
        """A worker has done what it could. If it was woken and did not try, because it waits for something else, the
        next one is."""
        if uid not in self._begun and (chance := self._chances.pop(uid, 0)):
            self._waiting.pop(uid, None)
            self._waiting[uid] = None
            if chance > 1:
                self._next(chance - 1)

    def succeeded(self, uid: str) -> None:
        """Also when the pod does not need a sandbox any more. There may be more than one pod can use."""
        self._begun.pop(uid, None)
        self._waiting.pop(uid, None)
        if chance := self._chances.pop(uid, 0):
            self._next(chance)

    def freed(self) -> None:
        """A sandbox was stopped."""
        self._freed += 1
        self._next(ATTEMPTS)

    def _next(self, chance: int) -> None:
        uid = next((uid for uid in self._waiting if uid not in self._chances and uid not in self._begun), None)
        if uid is not None:
            self._chances[uid] = chance
            self._retry(uid)

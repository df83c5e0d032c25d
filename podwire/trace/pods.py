"""Which pod something is about, learned from what passes: by namespace and name, by sandbox, by container. Pure."""

from dataclasses import dataclass, field

from podwire.trace.record import pod_id

MOST = 10_000
"""Names that are remembered of each kind; the oldest are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a record says of the pod it is about; what it does not say is empty."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    ids: tuple[str, ...] = ()
    """Of its sandbox and containers."""


class _Bounded(dict[str, str]):
    def learn(self, key: str, value: str) -> None:
        self.pop(key, None)
        self[key] = value
        if len(self) > MOST:
            del self[next(iter(self))]


@dataclass(slots=True)
class Pods:
    """Trace ids by everything that a pod is called."""

    _names: _Bounded = field(default_factory=_Bounded)
    _ids: _Bounded = field(default_factory=_Bounded)
    _calls: _Bounded = field(default_factory=_Bounded)

    def resolve(self, call: str, about: About) -> str | None:
        """The pod of a record of this call; learns what the record says. None when nobody has said it yet.

        Without a call: what one call delivers may be about many pods.
        """
        named = f"{about.namespace}/{about.name}" if about.name else ""
        pod = pod_id(about.uid) if about.uid else self._known(call, named, about.ids)
        if pod is None:
            return None
        if call:
            self._calls.learn(call, pod)
        for id_ in about.ids:
            self._ids.learn(id_, pod)
        if about.uid and named:
            self._names.learn(named, pod)
        return pod

    def forget(self, namespace: str, name: str) -> None:
        """The pod of that name is gone; the next one is another."""
        self._names.pop(f"{namespace}/{name}", None)

    def _known(self, call: str, named: str, ids: tuple[str, ...]) -> str | None:
        if pod := self._calls.get(call):
            return pod
        for id_ in ids:
            if pod := self._ids.get(id_):
                return pod
        return self._names.get(named) if named else None

"""Maps names, sandbox ids and container ids to pods, learned from the records that pass. Pure."""

from dataclasses import dataclass, field

from podwire.trace.record import pod_id

MOST = 10_000
"""Entries of each map; the oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The pod that a record is about, as far as the record says; unknown fields are empty."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    ids: tuple[str, ...] = ()
    """Ids of its sandbox, containers and claims."""


class _Bounded(dict[str, str]):
    def learn(self, key: str, value: str) -> None:
        self.pop(key, None)
        self[key] = value
        if len(self) > MOST:
            del self[next(iter(self))]


@dataclass(slots=True)
class Pods:
    """Trace ids by every name and id of a pod."""

    _names: _Bounded = field(default_factory=_Bounded)
    _ids: _Bounded = field(default_factory=_Bounded)
    _calls: _Bounded = field(default_factory=_Bounded)

    def resolve(self, call: str, about: About) -> str | None:
        """Returns the pod of a record of this call, and learns what the record says; None while it is unknown.

        `call` is empty for a stream whose events may be about many pods.
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
        """Removes a name: the pod was deleted, and the next one of that name is another."""
        self._names.pop(f"{namespace}/{name}", None)

    def _known(self, call: str, named: str, ids: tuple[str, ...]) -> str | None:
        if pod := self._calls.get(call):
            return pod
        for id_ in ids:
            if pod := self._ids.get(id_):
                return pod
        return self._names.get(named) if named else None

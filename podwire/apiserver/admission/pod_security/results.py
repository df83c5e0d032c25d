"""Violations of the standards, and the words in which upstream reports them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from podwire.kinds.stored import Object


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation: the rule, and the part of the pod that violates it."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Check = Callable[[Object, Object], Violation | None]
"""Checks the metadata and the spec of a pod."""


def containers(spec: Object) -> Iterator[Object]:
    """Yields all containers in the order in which upstream names them."""
    for part in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(part) or ()


def security(holder: Object) -> Object:
    """Returns the security context of a container or of a pod's spec."""
    context: Object = holder.get("securityContext") or {}
    return context


def quoted(words: Iterable[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def plural(count: int, one: str, many: str = "") -> str:
    return one if count == 1 else many or f"{one}s"


def named(names: Sequence[str], one: str = "container") -> str:
    """Returns `container "a"` or `containers "a", "b"`."""
    return f"{plural(len(names), one)} {quoted(names)}"


def setters(*, pod: bool, names: Sequence[str]) -> str:
    """Returns who sets a field: `pod`, `container "a"`, or both."""
    return " and ".join([*(["pod"] if pod else []), *([named(names)] if names else [])])


def is_windows(spec: Object) -> bool:
    return (spec.get("os") or {}).get("name") == "windows"


def in_user_namespace(spec: Object) -> bool:
    return spec.get("hostUsers") is False

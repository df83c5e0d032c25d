"""A script: pods, steps and expectations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.protocols.nri import nri_pb2 as pb

OLD = "old"
NEW = "new"

POD_VERBS = ("run", "update-pod", "life")
CONTAINER_VERBS = ("create", "start", "update")
EITHER_VERBS = ("stop", "remove")
OTHER_VERBS = ("restart-runtime", "restart-plugin", "disconnect", "big-node", "wait")
REGISTER = "register"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One expectation of a value in config.json."""

    path: str
    equals: Any = None
    contains: Any = None
    absent: bool = False
    matches: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The expected result of a step; None is not checked."""

    calls: tuple[str, ...] | None = None
    """The calls that the plugin gets, in this order."""
    asks: tuple[str, ...] | None = None
    """The calls that the plugin makes."""
    error: re.Pattern[str] | None = None
    adjust: Mapping[str, Any] | None = None
    """A part of the adjustment; empty: the adjustment must be empty."""
    updates: Sequence[Mapping[str, Any]] | None = None
    spec: tuple[Wanted, ...] = ()
    within: float | None = None
    synchronized: Mapping[str, int] | None = None
    connected: bool = True
    plugin: str | None = None
    subscribes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step."""

    verb: str
    subject: str = ""
    """POD, or POD/CONTAINER."""
    where: str = ""
    """SCRIPT:LINE."""
    number: float = 0
    """Seconds to wait, pods of a big node."""
    resources: pb.LinuxResources | None = None
    expect: Expect = field(default_factory=Expect)

    @property
    def title(self) -> str:
        about = self.subject or (f"{self.number:g}" if self.number else "")
        return f"{self.verb} {about}".strip()

    @property
    def pod(self) -> str:
        return self.subject.partition("/")[0]

    @property
    def container(self) -> str:
        return self.subject.partition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerScript:
    known: pb.Container
    spec: Mapping[str, Any]
    """Merged over the default config.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodScript:
    described: pb.PodSandbox
    host_network: bool = False
    containers: Mapping[str, ContainerScript] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeScript:
    name: str = "podwire-play"
    version: str = "v1.0.0"
    generation: str = NEW
    registration_timeout: float = 5.0
    request_timeout: float = 2.0
    synchronize_timeout: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    source: str = "no script"
    runtime: RuntimeScript = field(default_factory=RuntimeScript)
    config: str = ""
    """The configuration that Configure sends."""
    node: int = 0
    """Pods that exist before the plugin registers."""
    pods: Mapping[str, PodScript] = field(default_factory=dict)
    register: Expect = field(default_factory=Expect)
    steps: tuple[Step, ...] = ()


def lived(pod: str, containers: list[str]) -> list[Step]:
    """The lifecycle of a pod as steps."""
    steps = [Step(verb="run", subject=pod)]
    steps += [Step(verb=verb, subject=f"{pod}/{container}") for container in containers for verb in ("create", "start")]
    steps += [Step(verb=verb, subject=f"{pod}/{container}") for container in containers for verb in ("stop", "remove")]
    return [*steps, Step(verb="stop", subject=pod), Step(verb="remove", subject=pod)]

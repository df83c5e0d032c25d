"""A profile: the plugins that decide on the pods of one schedulerName."""

from dataclasses import dataclass, field

from podwire.scheduler.filters import FILTERS
from podwire.scheduler.framework import Filter
from podwire.scheduler.queue import Limits
from podwire.scheduler.scores import SCORES, Score

DEFAULT_NAME = "default-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str = DEFAULT_NAME
    """The pods' spec.schedulerName."""
    filters: tuple[Filter, ...] = FILTERS
    scores: tuple[Score, ...] = SCORES
    preempts: bool = True
    percentage_of_nodes: int = 0
    """A search ends when this part of the nodes fits, at least 100; 0: the larger the cluster, the smaller the part."""


DEFAULT = Profile()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings of a scheduler, by default or from a file."""

    profiles: tuple[Profile, ...] = (DEFAULT,)
    limits: Limits = field(default_factory=Limits)
    warnings: tuple[str, ...] = ()
    """Settings of the file that have no effect."""

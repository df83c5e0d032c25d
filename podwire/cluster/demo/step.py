"""A step of a demo, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, and what is to be seen in it."""

    name: str
    sentence: str
    command: str
    """As it is typed; `$name` stands for what an earlier step has learned."""
    refused: bool = False
    """The cluster is meant to say no."""
    since: str = ""
    """The first line worth showing begins with this."""
    lines: int = 12
    """So many lines are shown; of the rest, how many there are."""
    shows: str = ""
    """Words without which the output is not what was promised."""
    learns: tuple[str, ...] = ()
    """Names for the words of the output, which later commands use."""
    meanwhile: str = ""
    """A command that is given while the first one watches; the watch ends when it has shown `shows`."""
    then: str = ""
    """What a visitor types besides; it is only shown."""
    saves: str = ""
    """A file that the output is written to instead of being shown."""
    stays: bool = False
    """It is a process that goes on, in the background, once it has shown `shows`."""

    def possible(self, known: Mapping[str, str]) -> bool:
        """Whether all that its command uses was learned: where there is no IPv6, some things are not."""
        return Template(self.command).is_valid() and set(Template(self.command).get_identifiers()) <= set(known)

    def typed(self, known: Mapping[str, str]) -> str:
        return Template(self.command).substitute(known)

    def kept(self, ran_code: int, output: str) -> bool:
        """Whether it did what it promises."""
        return (ran_code != 0) is self.refused and self.shows in output

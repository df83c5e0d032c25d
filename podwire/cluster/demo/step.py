"""A step of the demo, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command, and the output that is expected."""

    name: str
    sentence: str
    command: str
    """As it is typed; `$name` is replaced by what an earlier step has learned."""
    refused: bool = False
    """The command is expected to fail."""
    since: str = ""
    """The first line to print begins with this."""
    lines: int = 12
    """Lines to print; of the rest, only the number."""
    shows: str = ""
    """Text that the output must contain."""
    learns: tuple[str, ...] = ()
    """Names for the words of the output, for later commands."""
    meanwhile: str = ""
    """A command to run while the first one watches; the watch ends when it has shown `shows`."""
    then: str = ""
    """An additional command that is only printed."""
    saves: str = ""
    """A file for the output, instead of printing it."""
    stays: bool = False
    """A background process, once it has shown `shows`."""

    def possible(self, known: Mapping[str, str]) -> bool:
        """Whether all variables of the command are known: without IPv6, some are not."""
        return Template(self.command).is_valid() and set(Template(self.command).get_identifiers()) <= set(known)

    def typed(self, known: Mapping[str, str]) -> str:
        return Template(self.command).substitute(known)

    def succeeded(self, ran_code: int, output: str) -> bool:
        """Whether the result is as expected."""
        return (ran_code != 0) is self.refused and self.shows in output

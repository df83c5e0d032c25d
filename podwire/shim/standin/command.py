"""The command line, and how what is wrong with it is told."""

import os
from typing import NoReturn

USAGE_LINE = (
    "usage: podwire-shim run OPTIONS -- RUNTIME [ARG]... | exec OPTIONS -- PROGRAM [ARG]... | attached FILE | version"
)
USAGE, FAILED, CANNOT_RUN, NOT_FOUND = 2, 125, 126, 127
PATH, CGROUPS = 4000, 16
VALUES = {"run": {"--id", "--bundle", "--state", "--log", "--cgroup"}, "exec": {"--cgroup", "--die-with"}}
FLAGS = {"run": {"--tty", "--stdin", "--stdin-once", "--cover-unified"}, "exec": {"--cover-unified"}}
PATHS = {"--bundle", "--state", "--log", "--cgroup"}


class Given:
    """What the command line says."""

    def __init__(self, verb: str, words: list[str]) -> None:
        self.values: dict[str, str] = {}
        self.flags: set[str] = set()
        self.cgroups: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                break
            if word in FLAGS[verb]:
                self.flags.add(word)
            elif word in VALUES[verb]:
                self._take(word, next(rest, None))
            else:
                die(USAGE, USAGE_LINE)
        self.command = list(rest)
        missing = verb == "run" and not {"--id", "--bundle", "--state"} <= self.values.keys()
        if missing or not self.command:
            die(USAGE, USAGE_LINE)

    def _take(self, name: str, value: str | None) -> None:
        if value is None or (name == "--cgroup" and len(self.cgroups) == CGROUPS):
            die(USAGE, USAGE_LINE)
        if name in PATHS and (not value.startswith("/") or len(os.fsencode(value)) > PATH):
            die(USAGE, f"{name} wants an absolute path, not {value[:99]}")
        if name == "--cgroup":
            self.cgroups.append(value)
        else:
            self.values[name] = value


def die(code: int, text: str) -> NoReturn:
    os.write(2, f"podwire-shim: {text}\n".encode(errors="surrogateescape"))
    os._exit(code)


def why(error: OSError) -> str:
    return os.strerror(error.errno or 0)

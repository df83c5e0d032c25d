"""The steps of a build: which files are copied, what is run, and the settings of the image at the end.

Variables depend on the file, the image that it starts from and the arguments of the build, never on a file system; so
all of a Containerfile is checked before the first step is done.
"""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwire.protocols.containerfile.syntax import BadContainerfile, Instruction, exec_form
from podwire.protocols.containerfile.words import Platform, expand, pairs, split

SCRATCH = "scratch"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL = ("/bin/sh", "-c")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp|sctp))?")
_SIGNAL = re.compile(r"(?:SIG)?[A-Z0-9+-]{1,16}|\d{1,2}")
_HEREDOC = re.compile(r"<<-?\s*['\"]?[A-Za-z_]")
_STAGE = re.compile(r"[a-z][a-z0-9-_.]*", re.IGNORECASE)
_UNSUPPORTED = {
    "ONBUILD": "is not supported: write the instructions into the Containerfiles that use this image",
    "HEALTHCHECK": "is not supported: Kubernetes has probes instead",
    "MAINTAINER": "is not supported: use LABEL org.opencontainers.image.authors=…",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Changes settings only."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Makes a directory, and those above it."""

    line: int
    text: str
    path: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies files of the context. `owner` is USER[:GROUP] of the image; `unpacks` is whether ADD would unpack tars."""

    line: int
    text: str
    sources: tuple[str, ...]
    destination: str
    into_directory: bool
    owner: str = ""
    mode: int | None = None
    unpacks: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Runs a command in the image so far."""

    line: int
    text: str
    arguments: tuple[str, ...]
    environment: tuple[str, ...]
    working_dir: str
    user: str


Step = Setting | MakeDirectory | Copy | Run


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, and the settings of the image in the words of its config (`Env`, `Cmd`, …)."""

    steps: tuple[Step, ...]
    settings: Mapping[str, Any]
    unused: tuple[str, ...] = ()
    """Arguments of the build that no ARG asks for."""


def source_image(instructions: Sequence[Instruction], arguments: Mapping[str, str], platform: Platform) -> str:
    """Returns the image of FROM, or SCRATCH. Raises BadContainerfile."""
    scope = _Arguments(arguments, platform)
    for instruction in instructions:
        if instruction.name == "ARG":
            scope.declare(instruction, scope.values)
        elif instruction.name == "FROM":
            return _from(instruction, scope.values)
        else:
            raise instruction.bad("stands before FROM; only ARG may")
    raise BadContainerfile(1, "has no FROM")


def plan_build(
    instructions: Sequence[Instruction], base: Mapping[str, Any], arguments: Mapping[str, str], platform: Platform
) -> Plan:
    """Returns what is to be done. `base` are the settings of the image of FROM. Raises BadContainerfile."""
    source_image(instructions, arguments, platform)
    builder = _Planner(base, arguments, platform)
    for instruction in instructions:
        builder.add(instruction)
    return builder.plan()


class _Arguments:
    """ARG: those before FROM count for FROM, and give their values to an ARG of the same name after it."""

    def __init__(self, given: Mapping[str, str], platform: Platform) -> None:
        self._given = given
        self._automatic = {
            "TARGETPLATFORM": str(platform),
            "TARGETOS": platform.os,
            "TARGETARCH": platform.architecture,
            "TARGETVARIANT": platform.variant,
        }
        self._before: dict[str, str] = {}
        self.values: dict[str, str] = dict(self._automatic)
        self.used: set[str] = set()

    def begin_stage(self) -> None:
        self._before, self.values = {**self._automatic, **self.values}, {}

    def declare(self, instruction: Instruction, variables: Mapping[str, str]) -> None:
        if not instruction.text:
            raise instruction.bad("needs NAME or NAME=VALUE")
        for word in _words(instruction):
            name, equals, default = word.partition("=")
            if not _VARIABLE.fullmatch(name):
                raise instruction.bad(f"{name[:80]!r} is not a name")
            self.used.add(name)
            if name in self._given:
                self.values[name] = self._given[name]
            elif equals:
                self.values[name] = expand(instruction, default, variables)
            elif name in self._before:
                self.values[name] = self._before[name]


@dataclass(slots=True)
class _Planner:
    base: Mapping[str, Any]
    given: Mapping[str, str]
    platform: Platform
    steps: list[Step] = field(default_factory=list)
    _settings: dict[str, Any] = field(default_factory=dict)
    _environment: dict[str, str] = field(default_factory=dict)
    _arguments: _Arguments = field(init=False)
    _shell: tuple[str, ...] = _SHELL
    _own_command: bool = False
    _begun: bool = False

    def __post_init__(self) -> None:
        self._arguments = _Arguments(self.given, self.platform)

    def plan(self) -> Plan:
        self._settings["Env"] = [f"{name}={value}" for name, value in self._environment.items()]
        settings = {name: value for name, value in sorted(self._settings.items()) if value}
        return Plan(tuple(self.steps), settings, tuple(sorted(set(self.given) - self._arguments.used)))

    def add(self, instruction: Instruction) -> None:
        if instruction.name in _UNSUPPORTED:
            raise instruction.bad(_UNSUPPORTED[instruction.name])
        handler = _HANDLERS.get(instruction.name)
        if handler is None:
            raise BadContainerfile(instruction.line, f"unknown instruction {instruction.name[:40]!r}")
        if not instruction.text:
            raise instruction.bad("has nothing after it")
        if instruction.name not in ("COPY", "ADD", "FROM") and instruction.flags:
            raise instruction.bad(f"--{instruction.flags[0][0]} is not supported")
        if instruction.name in ("RUN", "COPY", "ADD") and _HEREDOC.search(instruction.text):
            raise instruction.bad("here-documents (<<) are not supported")
        handler(self, instruction)

    @property
    def _variables(self) -> dict[str, str]:
        return {**self._arguments.values, **self._environment}

    def _text(self, instruction: Instruction) -> str:
        return expand(instruction, instruction.text, self._variables)

    def _set(self, instruction: Instruction) -> None:
        self.steps.append(Setting(instruction.line, str(instruction)))

    def start_stage(self, instruction: Instruction) -> None:
        if self._begun:
            raise instruction.bad("several stages are not supported; one FROM is")
        self._begun = True
        self._arguments.begin_stage()
        self._settings = {name: value for name, value in self.base.items() if name != "Env"}
        for variable in self.base.get("Env") or ():
            name, _, value = variable.partition("=")
            self._environment[name] = value
        self._environment.setdefault("PATH", DEFAULT_PATH)

    def declare_argument(self, instruction: Instruction) -> None:
        if self._begun:
            self._set(instruction)
        self._arguments.declare(instruction, self._variables)

    def set_environment(self, instruction: Instruction) -> None:
        values = pairs(instruction, self._variables)  # all of one instruction see what was before it
        for name, value in values:
            if "\0" in value or "\0" in name:
                raise instruction.bad("a text with a NUL in it")
            self._environment[name] = value
        self._set(instruction)

    def set_labels(self, instruction: Instruction) -> None:
        labels = {**(self._settings.get("Labels") or {}), **dict(pairs(instruction, self._variables))}
        self._settings["Labels"] = dict(sorted(labels.items()))
        self._set(instruction)

    def set_command(self, instruction: Instruction) -> None:
        self._settings["Cmd"] = self._command(instruction)
        self._own_command = True
        self._set(instruction)

    def set_entrypoint(self, instruction: Instruction) -> None:
        self._settings["Entrypoint"] = self._command(instruction)
        if not self._own_command:  # that of the image below was meant for the entrypoint below
            self._settings.pop("Cmd", None)
        self._set(instruction)

    def _command(self, instruction: Instruction) -> list[str]:
        words = exec_form(instruction)
        if words is not None and any("\0" in word for word in words):
            raise instruction.bad("a text with a NUL in it")
        return [*self._shell, instruction.text] if words is None else words

    def set_shell(self, instruction: Instruction) -> None:
        words = exec_form(instruction)
        if not words:
            raise instruction.bad('must be words such as ["/bin/sh", "-c"]')
        self._shell = tuple(words)
        self._set(instruction)

    def set_working_directory(self, instruction: Instruction) -> None:
        path = self._absolute(self._text(instruction))
        self._settings["WorkingDir"] = path
        self.steps.append(MakeDirectory(instruction.line, str(instruction), path))

    def set_user(self, instruction: Instruction) -> None:
        self._settings["User"] = self._text(instruction)
        self._set(instruction)

    def set_stop_signal(self, instruction: Instruction) -> None:
        signal = self._text(instruction)
        if not _SIGNAL.fullmatch(signal):
            raise instruction.bad(f"{signal[:40]!r} is not a signal, such as SIGTERM or 15")
        self._settings["StopSignal"] = signal
        self._set(instruction)

    def expose_ports(self, instruction: Instruction) -> None:
        ports = dict(self._settings.get("ExposedPorts") or {})
        for word in split(instruction, instruction.text, self._variables):
            match = _PORT.fullmatch(word)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
            if match is None or not 1 <= first <= last <= 65535:
                raise instruction.bad(f"{word[:40]!r} is not a port, such as 80 or 53/udp")
            ports.update({f"{port}/{match[3] or 'tcp'}": {} for port in range(first, last + 1)})
        self._settings["ExposedPorts"] = dict(sorted(ports.items()))
        self._set(instruction)

    def add_volumes(self, instruction: Instruction) -> None:
        words = exec_form(instruction)
        paths = split(instruction, instruction.text, self._variables) if words is None else words
        if any(not path.strip() for path in paths):
            raise instruction.bad("a path must not be empty")
        volumes = {**(self._settings.get("Volumes") or {}), **{path: {} for path in paths}}
        self._settings["Volumes"] = dict(sorted(volumes.items()))
        self._set(instruction)

    def run(self, instruction: Instruction) -> None:
        command = self._command(instruction)
        if not command or not command[0]:
            raise instruction.bad("names no program")
        self.steps.append(
            Run(
                line=instruction.line,
                text=str(instruction),
                arguments=tuple(command),
                environment=tuple(f"{name}={value}" for name, value in self._variables.items()),
                working_dir=self._settings.get("WorkingDir") or "/",
                user=self._settings.get("User") or "",
            )
        )

    def copy(self, instruction: Instruction) -> None:
        owner, mode = "", None
        for name, value in instruction.flags:
            text = expand(instruction, value, self._variables)
            if name == "chown" and text:
                owner = text
            elif name == "chmod":
                if not re.fullmatch(r"[0-7]{3,4}", text):
                    raise instruction.bad(f"--chmod={text[:40]} is not an octal mode, such as 755")
                mode = int(text, 8)
            else:
                raise instruction.bad(f"--{name} is not supported; --chown and --chmod are")
        words = exec_form(instruction)
        if words is None:
            words = split(instruction, instruction.text, self._variables)
        if len(words) < 2:
            raise instruction.bad("needs a source and a destination")
        *sources, destination = words
        adds = instruction.name == "ADD"
        if adds and (remote := next((source for source in sources if _is_remote(source)), "")):
            raise instruction.bad(f"{remote[:80]}: downloads are not supported; download the file, and COPY it")
        into_directory = destination.endswith("/") or posixpath.basename(destination) in (".", "..")
        if len(sources) > 1 and not into_directory:
            raise instruction.bad("with several sources the destination must be a directory and end with /")
        self.steps.append(
            Copy(
                line=instruction.line,
                text=str(instruction),
                sources=tuple(sources),
                destination=self._absolute(destination),
                into_directory=into_directory,
                owner=owner,
                mode=mode,
                unpacks=adds,
            )
        )

    def _absolute(self, path: str) -> str:
        whole = posixpath.normpath(posixpath.join("/", self._settings.get("WorkingDir") or "/", path))
        return "/" + whole.lstrip("/")


def _words(instruction: Instruction) -> list[str]:
    """Returns the words of ARG with their quotes, which are removed when a default is expanded."""
    return [word for word in re.findall(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+", instruction.text) if word]


def _from(instruction: Instruction, variables: Mapping[str, str]) -> str:
    for name, _value in instruction.flags:
        raise instruction.bad(f"--{name} is not supported; the build has --platform")
    words = split(instruction, instruction.text, variables)
    if len(words) == 3 and words[1].lower() == "as" and _STAGE.fullmatch(words[2]):
        del words[1:]
    if len(words) != 1 or not words[0]:
        raise instruction.bad("needs one image, or scratch")
    return words[0]


def _is_remote(source: str) -> bool:
    return source.startswith(("http://", "https://", "git@", "ssh://", "git://"))


_HANDLERS: Mapping[str, Callable[[_Planner, Instruction], None]] = {
    "FROM": _Planner.start_stage,
    "ARG": _Planner.declare_argument,
    "ENV": _Planner.set_environment,
    "LABEL": _Planner.set_labels,
    "CMD": _Planner.set_command,
    "ENTRYPOINT": _Planner.set_entrypoint,
    "SHELL": _Planner.set_shell,
    "WORKDIR": _Planner.set_working_directory,
    "USER": _Planner.set_user,
    "STOPSIGNAL": _Planner.set_stop_signal,
    "EXPOSE": _Planner.expose_ports,
    "VOLUME": _Planner.add_volumes,
    "RUN": _Planner.run,
    "COPY": _Planner.copy,
    "ADD": _Planner.copy,
}

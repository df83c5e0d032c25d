"""CNI verbs, and the environment variables of a plugin call."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from podwire.protocols.cni.errors import CniError, Code


class Verb(NamedTuple):
    since: str
    needs: tuple[str, ...] = ()
    """Variables that must be set; CNI_COMMAND always."""


_ATTACHMENT = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME")

VERBS = {
    "ADD": Verb("0.1.0", _ATTACHMENT),
    "DEL": Verb("0.1.0", ("CNI_CONTAINERID", "CNI_IFNAME")),
    "CHECK": Verb("0.4.0", _ATTACHMENT),
    "GC": Verb("1.1.0", ("CNI_PATH",)),
    "STATUS": Verb("1.1.0"),
    "VERSION": Verb("0.1.0"),
}

LONGEST_ID = 200
"""Characters of a container id."""
_LONGEST_IFNAME = 15
_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*", re.ASCII)


def is_id(text: object) -> bool:
    """The form of container ids and network names, which become parts of paths."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_ifname(text: str) -> bool:
    """A link's name that the kernel takes as it is; a `%` it would fill in by itself."""
    if not 0 < len(text.encode("utf-8", "surrogateescape")) <= _LONGEST_IFNAME or text in (".", ".."):
        return False
    return not any(character in "/:%" or character.isspace() or not character.isprintable() for character in text)


class Invocation(NamedTuple):
    """One call of a plugin."""

    command: str
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: str = ""
    path: str = ""

    @property
    def verb(self) -> Verb:
        return VERBS[self.command]

    def environment(self) -> dict[str, str]:
        """As the runtime sets it; what a verb does not use is not set."""
        environment = {"CNI_COMMAND": self.command, "CNI_ARGS": self.args, "CNI_PATH": self.path}
        if "CNI_CONTAINERID" in self.verb.needs:
            environment |= {"CNI_CONTAINERID": self.container_id, "CNI_NETNS": self.netns, "CNI_IFNAME": self.ifname}
        return environment


def invocation(environment: Mapping[str, str]) -> Invocation:
    """As the plugin reads it; the error names everything that is wrong, not only the first."""
    command = environment.get("CNI_COMMAND", "")
    if command not in VERBS:
        raise CniError(Code.BAD_ENVIRONMENT, f"unknown CNI_COMMAND: {command}", f"must be one of {', '.join(VERBS)}")
    needed = VERBS[command].needs
    missing = [name for name in needed if not environment.get(name)]
    wrong = [(f"required env variables [{','.join(missing)}] missing", f"{command} needs them")] if missing else []
    if "CNI_CONTAINERID" in needed:
        wrong += _malformed(environment)
    wrong += _relative_path(environment)
    if wrong:
        raise CniError(Code.BAD_ENVIRONMENT, wrong[0][0], "; ".join(filter(None, (details for _, details in wrong))))
    names = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH")
    request = Invocation(command, *(environment.get(name, "") for name in names))
    absolute = [entry for entry in request.path.split(":") if entry.startswith("/")]
    return request._replace(path=":".join(absolute))


_Wrong = list[tuple[str, str]]
"""Errors in the words of the reference plugins, and in ours."""


def _relative_path(environment: Mapping[str, str]) -> _Wrong:
    """A program of the working directory must not be run as root. DEL must not fail, and ignores such entries."""
    entries = [entry for entry in environment.get("CNI_PATH", "").split(":") if entry]
    relative = [entry for entry in entries if not entry.startswith("/")]
    if not relative or environment.get("CNI_COMMAND") == "DEL":
        return []
    message = f"CNI_PATH {', '.join(map(repr, relative))} must be an absolute path"
    return [(message, message)]


def _malformed(environment: Mapping[str, str]) -> _Wrong:
    id_, ifname = environment.get("CNI_CONTAINERID", ""), environment.get("CNI_IFNAME", "")
    wrong: _Wrong = []
    if id_ and not is_id(id_):
        rule = "must be letters, digits, '_', '.' and '-', and begin with one of the first"
        wrong.append(("invalid characters in containerID", f"CNI_CONTAINERID {id_!r} {rule}"))
    if len(id_) > LONGEST_ID and environment.get("CNI_COMMAND") != "DEL":  # which may be of an older podwire
        message = f"CNI_CONTAINERID is longer than {LONGEST_ID} characters"
        wrong.append((message, message))
    if ifname and not is_ifname(ifname):
        rule = "must be 1 to 15 bytes without '/', ':', '%', spaces"
        wrong.append((_ifname_words(ifname), f"CNI_IFNAME {ifname!r} {rule}"))
    return wrong


def _ifname_words(ifname: str) -> str:
    if ifname in (".", ".."):
        return "interface name is . or .."
    if any(character in "/:" or character.isspace() for character in ifname):
        return "interface name contains / or : or whitespace characters"
    return "interface name is too long" if len(ifname) > _LONGEST_IFNAME else "interface name is invalid"

"""The CDI file of a prepared claim: what its containers get, and the hook without which none of them starts.

One file for each claim, named by its uid, so that no runtime takes an older one for it.

The hook (`podwire-shim attached FILE`) compares the container's network namespace with STATE/attached/POD. It is the
second of three ways in which attachment fails closed, see nri_hooks; it also works while the driver is not running.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from podwire.dradriver.names import CDI_KIND, DRIVER
from podwire.durable.files import replace_file
from podwire.failpoints import declare, failpoint

VERSION = "0.5.0"
"""The oldest version that has what is used, so that more runtimes accept it."""
HOOK_SECONDS = 10
HOOK_NAME = "podwire-network-attached"
WRITTEN = declare("network-driver.cdi-written", "a claim's CDI file exists, and the kubelet has no answer yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    host: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEdits:
    """The container edits of one request of a claim."""

    request: str
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()


def device(claim_uid: str, request: str) -> str:
    return f"{claim_uid}-{request}"


def device_id(claim_uid: str, request: str) -> str:
    """The CDI name that the kubelet hands to the runtime."""
    return f"{CDI_KIND}={device(claim_uid, request)}"


def variable(request: str, what: str) -> str:
    """The name of an environment variable."""
    return f"PODWIRE_{re.sub(r'[^A-Z0-9]', '_', request.upper())}_{what}"


def spec(claim_uid: str, parts: Sequence[RequestEdits], hook: Sequence[str], attached: Path) -> dict[str, Any]:
    """Returns the file's content. `hook` is the beginning of the hook's command line, `attached` the file it reads."""
    check = {
        "hookName": "createRuntime",
        "path": hook[0],
        "args": [*hook, "attached", str(attached)],
        "timeout": HOOK_SECONDS,
    }
    return {
        "cdiVersion": VERSION,
        "kind": CDI_KIND,
        "devices": [{"name": device(claim_uid, part.request), "containerEdits": _edits(part)} for part in parts],
        "containerEdits": {"hooks": [check]},
    }


def _edits(part: RequestEdits) -> dict[str, Any]:
    mounts = [
        {"hostPath": mount.host, "containerPath": mount.container, "options": ["ro", "nosuid", "nodev", "rbind"]}
        for mount in part.mounts
    ]
    return {"env": [f"{name}={value}" for name, value in part.env.items()], **({"mounts": mounts} if mounts else {})}


class CdiFiles:
    """The files of all claims. Blocks; raises OSError.

    The runtimes' directory (/var/run/cdi) is empty after a boot, and kubelets do not prepare again what their
    checkpoint has. So the driver keeps a copy of each file in its own state.
    """

    def __init__(self, directory: Path, hook: Sequence[str], *, kept: Path) -> None:
        self._directory, self._hook, self._kept = directory, tuple(hook), kept

    def write(self, claim_uid: str, parts: Sequence[RequestEdits], attached: Path) -> None:
        """Writes what changed; runtimes would read an unchanged file again."""
        content_ = spec(claim_uid, parts, self._hook, attached)
        content = msgspec.json.format(msgspec.json.encode(content_), indent=1)
        for directory, mode in ((self._kept, 0o700), (self._directory, 0o755)):
            if not _has(directory / _name(claim_uid), content):
                directory.mkdir(mode=mode, parents=True, exist_ok=True)
                replace_file(directory / _name(claim_uid), content, 0o644)
        failpoint(WRITTEN)

    def remove(self, claim_uid: str) -> None:
        for directory in (self._directory, self._kept):
            (directory / _name(claim_uid)).unlink(missing_ok=True)

    def keep_only(self, live: Collection[str]) -> None:
        """Removes the files of other claims, and restores missing files of these from the copies."""
        for path in self._directory.glob(_name("*")):
            uid = path.name.removeprefix(_HEAD).removesuffix(_TAIL)
            if uid not in live:
                self.remove(uid)
        for uid in live:
            source, target = self._kept / _name(uid), self._directory / _name(uid)
            if source.exists() and not target.exists():
                self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                replace_file(target, source.read_bytes(), 0o644)


_HEAD, _TAIL = f"{DRIVER}-claim@", ".json"


def _name(claim_uid: str) -> str:
    return f"{_HEAD}{claim_uid}{_TAIL}"


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False

"""systemd units for a cluster or a node of one: their text, and the files.

Only the supervisor gets signals (`KillMode=process`), because it stops its components in order; pods and their shims
outlive a restart of the unit. A file that does not begin with our mark belongs to somebody else and is left alone.
"""

from collections.abc import Sequence
from pathlib import Path

from podwire.durable.files import write_durably

DIRECTORY = Path("/etc/systemd/system")
MARK = "# Written by `podwire install`; `podwire uninstall` removes it.\n"
CONTROL_PLANE, NODE = "podwire.service", "podwire-node.service"
UNITS = (CONTROL_PLANE, NODE)

_UNIT = """\
[Unit]
Description={description}
Documentation=man:podwire(1)
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=2
KillMode=process
TimeoutStopSec=90
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""


class ForeignUnit(Exception):
    """The file of a unit is not ours."""


def text(description: str, command: Sequence[str]) -> str:
    """Returns a unit that runs a command."""
    return MARK + _UNIT.format(description=description, command=" ".join(map(quoted, command)))


def quoted(word: str) -> str:
    """Quotes a word for systemd: `%` and `$` have a meaning there."""
    plain = word.replace("%", "%%").replace("$", "$$")
    if plain and not any(character.isspace() or character in "\"'\\;" for character in plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def is_ours(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline() == MARK


def write(path: Path, content: str) -> bool:
    """Writes a unit; returns False if it is there as it should be. Raises ForeignUnit, OSError."""
    if path.exists():
        if not is_ours(path):
            raise ForeignUnit(f"{path} was not written by podwire; remove it first")
        if path.read_text(encoding="utf-8") == content:
            return False
    write_durably(path, content.encode(), mode=0o644)
    return True


def remove(directory: Path) -> list[Path]:
    """Removes our units; returns their paths. Raises ForeignUnit, OSError."""
    present = [directory / name for name in UNITS if (directory / name).exists()]
    if foreign := [path for path in present if not is_ours(path)]:
        raise ForeignUnit(f"{foreign[0]} was not written by podwire, and stays")
    for path in present:
        path.unlink()
    return present

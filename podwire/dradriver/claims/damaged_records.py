"""Records that cannot be read: put aside under a name that still says whose they are. Blocks; raises OSError."""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from podwire.dradriver.claims.allocations import ClaimRef, PodRef

SUFFIX = ".damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    file: Path
    pod_uid: str
    claim_uid: str
    device: str
    share_id: str

    @property
    def told(self) -> str:
        reason = "so the driver cannot bring it back as it was; delete the pod, then see to the device"
        return f"the record of device {self.device} was damaged and is put aside as {self.file}, {reason}"


class Damage:
    """All that was put aside below a driver's state."""

    def __init__(self, state: Path) -> None:
        self.state, self._records = state, state / "records"

    def found(self, claim_uid: str = "") -> list[Damaged]:
        """That of a claim, or all."""
        return [each for each in self._all() if not claim_uid or each.claim_uid == claim_uid]

    def _all(self) -> Iterator[Damaged]:
        for path in sorted(self._files()):
            parts = [unquote(each) for each in path.name.removesuffix(SUFFIX).split("~")]
            if len(parts) == 3:
                claim, device, share = parts
                pod = unquote(path.parent.name)
                yield Damaged(file=path, pod_uid=pod, claim_uid=claim, device=device, share_id=share)

    def _files(self) -> Iterator[Path]:
        for pod in self._records.iterdir() if self._records.is_dir() else ():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # its last claim is just let go
                yield from (each for each in list(pod.iterdir()) if each.suffix == SUFFIX)

    def forget(self, damaged: Damaged) -> None:
        """Nobody has the claim any more: what its record told of is of no use."""
        damaged.file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are records of other claims
            damaged.file.parent.rmdir()


def whose(damaged: Damaged) -> list[ClaimRef | PodRef]:
    """The claim and the pod, as far as the file still names them."""
    try:
        text = damaged.file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    claim, pod = _named("claim", text, damaged.claim_uid), _named("pod", text, damaged.pod_uid)
    found: list[ClaimRef | PodRef] = []
    if claim is not None:
        found.append(ClaimRef(namespace=claim[0], name=claim[1], uid=damaged.claim_uid))
    if pod is not None:
        found.append(PodRef(namespace=pod[0], name=pod[1], uid=damaged.pod_uid))
    return found


def _named(kind: str, text: str, uid: str) -> tuple[str, str] | None:
    for each in re.findall(rf'"{kind}": (\{{[^{{}}]*\}})', text):
        with contextlib.suppress(ValueError, KeyError):
            told = json.loads(each)
            if told["uid"] == uid:
                return str(told["namespace"]), str(told["name"])
    return None

"""Records that cannot be read: put aside under a name that still says whose they are. Blocks; raises OSError."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

SUFFIX = ".damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    file: Path
    pod_uid: str
    claim_uid: str
    device: str
    share_id: str


def damaged(state: Path, claim_uid: str = "") -> list[Damaged]:
    """Those of a claim, or all."""
    found = _all(state / "records")
    return [each for each in found if not claim_uid or each.claim_uid == claim_uid]


def _all(records: Path) -> Iterator[Damaged]:
    for path in sorted(records.glob(f"*/*{SUFFIX}")):
        parts = [unquote(each) for each in path.name.removesuffix(SUFFIX).split("~")]
        if len(parts) == 3:
            claim, device, share = parts
            yield Damaged(file=path, pod_uid=unquote(path.parent.name), claim_uid=claim, device=device, share_id=share)

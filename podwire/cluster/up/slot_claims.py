"""Claims of slots by prefixes, machine-wide: one file per slot, changed by one process at a time.

A prefix keeps its slot for as long as it keeps its record, also after a reboot, when another cluster may start first:
so claims are as durable as records. They are not `durable.Records`: clusters of several versions of podwire share this
directory, and one version must neither refuse (NewerFormat) nor quarantine what another one wrote. An unreadable claim
is free, because the routes and the port of a slot are checked as well.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from podwire.cluster.up import state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slots import LAST, Slot
from podwire.durable.files import write_durably
from podwire.durable.locks import lock_file
from podwire.linux.errors import NoSuchPath
from podwire.linux.proc.processes import boot_id

DIRECTORY = Path("/var/lib/podwire/slots")
_LOCK = ".lock"
_FORWARDING = "forwarding-"


class NoSlot(Exception):
    """No slot is free, or not the one that this prefix needs."""


class Claim(msgspec.Struct, frozen=True):
    """The owner of a slot, and the network namespace of its links."""

    prefix: str
    netns: str


class SlotClaims:
    """A directory of claims. A claim whose prefix has no record is stale."""

    def __init__(self, directory: Path = DIRECTORY, netns: Callable[[], str] | None = None) -> None:
        self._directory, self._netns = directory, netns or own_netns

    def claim(
        self,
        layout: Layout,
        wanted: int | None,
        trouble: Callable[[Slot], str],
        keep: Callable[[Slot], None],
    ) -> Slot:
        """Claims the wanted slot, or the first free one without objections; `keep` saves it.

        Others wait until it is saved, so that a claim in progress never looks stale.
        """
        own = Claim(str(layout.prefix), self._netns())
        with self._locked():
            numbers = [wanted] if wanted is not None else _candidates(layout)
            against = []
            for number in numbers:
                reason = self._taken(number, own.prefix) or trouble(Slot(number))
                if not reason:
                    self._write(number, own)
                    keep(Slot(number))
                    return Slot(number)
                against.append(f"slot {number}: {reason}")
        self._remove_if_unused()
        raise NoSlot("; ".join(against[:3]) + ("; …" if len(against) > 3 else ""))

    def release(self, prefix: Path) -> None:
        """Releases all slots of a prefix."""
        with self._locked():
            for number, claim in self._all().items():
                if claim is not None and claim.prefix == str(prefix):
                    (self._directory / str(number)).unlink()
        self._remove_if_unused()

    def of(self, prefix: Path) -> list[int]:
        """Returns the slots of a prefix."""
        return [number for number, claim in self._all().items() if claim is not None and claim.prefix == str(prefix)]

    def prefixes(self) -> set[Path]:
        """Returns the prefixes of all clusters of this machine."""
        return {Path(claim.prefix) for claim in self._all().values() if claim is not None}

    def others(self, prefix: Path, netns: str) -> bool:
        """Whether another cluster has links in a network namespace."""
        claims = [claim for claim in self._all().values() if claim is not None]
        return any(claim.prefix != str(prefix) and claim.netns == netns for claim in claims)

    def note_forwarding(self, names: list[str]) -> None:
        """Records which sysctls of this network namespace podwire turned on; drops records of unused namespaces."""
        if names:
            with self._locked():
                used = {claim.netns for claim in self._all().values() if claim is not None}
                for path in self._directory.glob(f"{_FORWARDING}*"):
                    if path.name.removeprefix(_FORWARDING) not in used:
                        path.unlink()
                self._forwarding().write_text("\n".join(names), encoding="ascii")

    def end_forwarding(self, prefix: Path) -> list[str]:
        """Returns the sysctls to turn off again: those that podwire turned on, when the last cluster leaves."""
        with self._locked():
            path = self._forwarding()
            if self.others(prefix, self._netns()) or not path.exists():
                return []
            names = path.read_text(encoding="ascii").split()
            path.unlink()
            return names

    def _forwarding(self) -> Path:
        return self._directory / f"{_FORWARDING}{self._netns()}"

    def _taken(self, number: int, prefix: str) -> str:
        """Returns who has the slot; empty if it is free."""
        claim = self._all().get(number)
        if claim is None or claim.prefix == prefix or not state.exists(Layout(Path(claim.prefix)).record):
            return ""
        return f"taken by the cluster below {claim.prefix}"

    def _all(self) -> dict[int, Claim | None]:
        """Returns all claims; None for one that a crash left unreadable."""
        claims: dict[int, Claim | None] = {}
        try:
            paths = list(self._directory.iterdir())
        except FileNotFoundError:  # nobody holds anything
            return claims
        for path in paths:
            if path.name.isdigit():
                with contextlib.suppress(FileNotFoundError):
                    claims[int(path.name)] = _decoded(path.read_bytes())
        return claims

    def _write(self, number: int, claim: Claim) -> None:
        write_durably(self._directory / str(number), msgspec.json.encode(claim), 0o644)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        while True:
            try:
                with contextlib.suppress(FileExistsError):
                    self._directory.mkdir(mode=0o755, parents=True)
                lock = lock_file(self._directory / _LOCK, wait=None, name="podwire")
            except (FileNotFoundError, NoSuchPath):
                continue  # the last holder has just removed the directory
            with lock:
                yield
                return

    def _remove_if_unused(self) -> None:
        """Removes the directory when no slot is claimed; a process that waits for the lock creates it again."""
        with self._locked():
            paths = list(self._directory.iterdir())
            if not any(path.name.isdigit() for path in paths):
                for path in paths:  # forwarding records of unused namespaces, temporary files
                    if path.name != _LOCK:
                        path.unlink()
                (self._directory / _LOCK).unlink()  # from now on others may create it again
                for path in (self._directory, self._directory.parent):
                    with contextlib.suppress(OSError):
                        path.rmdir()


def _candidates(layout: Layout) -> list[int]:
    """Slot 0 is for the default prefix, which takes another one only when it must."""
    others = list(range(1, LAST + 1))
    return [0, *others] if layout.is_default else others


def own_netns() -> str:
    """Identifies the current network namespace; inode numbers are valid for one boot only."""
    return f"{boot_id()}-{Path('/proc/self/ns/net').stat().st_ino}"


def _decoded(text: bytes) -> Claim | None:
    try:
        return msgspec.json.decode(text, type=Claim)
    except msgspec.MsgspecError:
        return None

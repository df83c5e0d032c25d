"""Which prefix has which slot, machine-wide: one file a slot, changed by one process at a time.

A prefix keeps its slot for as long as it keeps its record of that, also when the machine starts anew and another
cluster is brought up first: so claims are as durable as records are.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slots import LAST, Slot
from podwire.durable.files import write_durably
from podwire.linux.proc.processes import boot_id

DIRECTORY = Path("/var/lib/podwire/slots")
_LOCK = ".lock"
_FORWARDING = "forwarding-"


class NoSlot(Exception):
    """None is free, or not the one that this prefix needs."""


class Claim(msgspec.Struct, frozen=True):
    """Whose a slot is, and the network namespace in which its links are."""

    prefix: str
    netns: str


class SlotClaims:
    """A directory of claims. A claim whose prefix keeps no state is stale: whoever made it is gone."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._directory = directory

    def claim(
        self,
        layout: Layout,
        wanted: int | None,
        trouble: Callable[[Slot], str],
        keep: Callable[[Slot], None],
    ) -> Slot:
        """Take the wanted slot, or the first free one that nothing speaks against; `keep` writes it down.

        Others wait until it is written down, so that nobody takes a claim for stale that is just being made.
        """
        own = Claim(str(layout.prefix), own_netns())
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
        self._tidy()
        raise NoSlot("; ".join(against[:3]) + ("; …" if len(against) > 3 else ""))

    def release(self, prefix: Path) -> None:
        """Give back whatever a prefix holds."""
        with self._locked():
            for number, claim in self._all().items():
                if claim is not None and claim.prefix == str(prefix):
                    (self._directory / str(number)).unlink()
        self._tidy()

    def of(self, prefix: Path) -> list[int]:
        """The slots that a prefix holds."""
        return [number for number, claim in self._all().items() if claim is not None and claim.prefix == str(prefix)]

    def others(self, prefix: Path, netns: str) -> bool:
        """Whether any other cluster has links in a network namespace."""
        found = [claim for claim in self._all().values() if claim is not None]
        return any(claim.prefix != str(prefix) and claim.netns == netns for claim in found)

    def note_forwarding(self, names: list[str]) -> None:
        """Remember which parameters of this network namespace podwire turned on; forget namespaces that nobody uses."""
        if names:
            with self._locked():
                used = {claim.netns for claim in self._all().values() if claim is not None}
                for path in self._directory.glob(f"{_FORWARDING}*"):
                    if path.name.removeprefix(_FORWARDING) not in used:
                        path.unlink()
                self._forwarding().write_text("\n".join(names), encoding="ascii")

    def end_forwarding(self, prefix: Path) -> list[str]:
        """Which parameters are to be turned off again: those that podwire turned on, as the last cluster leaves."""
        with self._locked():
            path = self._forwarding()
            if self.others(prefix, own_netns()) or not path.exists():
                return []
            names = path.read_text(encoding="ascii").split()
            path.unlink()
            return names

    def _forwarding(self) -> Path:
        return self._directory / f"{_FORWARDING}{own_netns()}"

    def _taken(self, number: int, prefix: str) -> str:
        """Who else has it; empty when nobody does."""
        claim = self._all().get(number)
        if claim is None or claim.prefix == prefix or not Layout(Path(claim.prefix)).record.exists():
            return ""
        return f"taken by the cluster below {claim.prefix}"

    def _all(self) -> dict[int, Claim | None]:
        """None for a claim that a crash left unreadable."""
        found: dict[int, Claim | None] = {}
        try:
            there = list(self._directory.iterdir())
        except FileNotFoundError:  # nobody holds anything
            return found
        for path in there:
            if path.name.isdigit():
                with contextlib.suppress(FileNotFoundError):
                    found[int(path.name)] = _decoded(path.read_bytes())
        return found

    def _write(self, number: int, claim: Claim) -> None:
        write_durably(self._directory / str(number), msgspec.json.encode(claim), 0o644)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        while True:
            path = self._directory / _LOCK
            try:
                with contextlib.suppress(FileExistsError):
                    self._directory.mkdir(mode=0o755, parents=True)
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # the last one to leave has just removed the directory
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is_at(lock, path):
                    yield
                    return
            finally:
                os.close(lock)

    def _tidy(self) -> None:
        """Remove the directory when nobody holds anything; whoever waits for the lock makes it anew."""
        with self._locked():
            there = list(self._directory.iterdir())
            if not any(path.name.isdigit() for path in there):
                for path in there:  # notes about network namespaces that nobody uses any more, drafts of the killed
                    if path.name != _LOCK:
                        path.unlink()
                (self._directory / _LOCK).unlink()  # from now on it is not only us who may be in there
                for path in (self._directory, self._directory.parent):
                    with contextlib.suppress(OSError):
                        path.rmdir()


def _candidates(layout: Layout) -> list[int]:
    """Slot 0 is for the default prefix, which takes another one only when it must."""
    others = list(range(1, LAST + 1))
    return [0, *others] if layout.is_default else others


def own_netns() -> str:
    """The network namespace that we are in; the kernel's numbers mean nothing beyond a boot."""
    return f"{boot_id()}-{Path('/proc/self/ns/net').stat().st_ino}"


def _decoded(text: bytes) -> Claim | None:
    try:
        return msgspec.json.decode(text, type=Claim)
    except msgspec.MsgspecError:
        return None


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False

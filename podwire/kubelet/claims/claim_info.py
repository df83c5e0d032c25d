"""What is written down of a claim that pods of this node use. Pure."""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from podwire.kubelet.sealed import Damaged, opened, seal
from podwire.objects.claims import AllocatedDevice, ResourceClaim

VERSION = 1


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One that a driver has prepared."""

    pool: str
    name: str
    requests: tuple[str, ...] = ()
    """For which requests of the claim; empty for all."""
    cdi: tuple[str, ...] = ()
    share_id: str | None = None


class ClaimUser(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, in the claim's namespace."""

    uid: str
    name: str


class ClaimInfo(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    allocation: str
    """Another one, another fingerprint."""
    drivers: dict[str, tuple[PreparedDevice, ...] | None]
    """What each has prepared; None for one that has not answered yet, though it may have been asked."""
    boots: dict[str, str] = {}
    """By driver: the boot of the machine that it has prepared it in."""
    users: tuple[ClaimUser, ...] = ()
    leaving: bool = False
    """Drivers were asked, or are about to be, to let go of it."""
    version: int = VERSION

    @property
    def prepared(self) -> bool:
        """By all its drivers, once."""
        return not self.leaving and all(devices is not None for devices in self.drivers.values())

    def used_by(self, uid: str) -> bool:
        return any(each.uid == uid for each in self.users)

    def with_user(self, user: ClaimUser) -> "ClaimInfo":
        return self if self.used_by(user.uid) else msgspec.structs.replace(self, users=(*self.users, user))

    def without_user(self, uid: str) -> "ClaimInfo":
        return msgspec.structs.replace(self, users=tuple(each for each in self.users if each.uid != uid))

    def ready(self, driver: str, boot: str) -> bool:
        """Whether a driver has prepared it since the machine was started."""
        return self.drivers[driver] is not None and self.boots.get(driver) == boot

    def with_drivers(self, drivers: Mapping[str, tuple[PreparedDevice, ...] | None], boot: str) -> "ClaimInfo":
        boots = {**self.boots, **dict.fromkeys(drivers, boot)}
        return msgspec.structs.replace(self, drivers={**self.drivers, **drivers}, boots=boots)

    def without_drivers(self, names: Iterable[str]) -> "ClaimInfo":
        gone = set(names)
        drivers = {name: devices for name, devices in self.drivers.items() if name not in gone}
        boots = {name: boot for name, boot in self.boots.items() if name not in gone}
        return msgspec.structs.replace(self, drivers=drivers, boots=boots)


def new(claim: ResourceClaim) -> ClaimInfo:
    """Of a claim that is not known yet."""
    return ClaimInfo(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        allocation=fingerprint(claim.allocated),
        drivers=dict.fromkeys(dict.fromkeys(each.driver for each in claim.allocated)),
    )


def fingerprint(results: Iterable[AllocatedDevice]) -> str:
    words = [[*each.identity, each.request, each.share_id] for each in results]
    return hashlib.blake2b(msgspec.json.encode(words), digest_size=12).hexdigest()


def encode(record: ClaimInfo) -> bytes:
    return seal(record)


def decode(data: bytes) -> ClaimInfo:
    """Damaged."""
    if (version := opened(data, _Version).version) != VERSION:
        raise Damaged(f"it is of version {version}, and {VERSION} is understood")
    return opened(data, ClaimInfo)


class _Version(msgspec.Struct):
    version: int

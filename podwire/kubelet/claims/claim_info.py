"""A ResourceClaim that pods of this node use, as the checkpoint has it (ClaimInfo of the stock kubelet). Pure."""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from podwire.objects.claims import AllocatedDevice, ResourceClaim


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a driver has prepared."""

    pool: str
    name: str
    requests: tuple[str, ...] = ()
    """Requests of the claim that it belongs to; empty for all."""
    cdi: tuple[str, ...] = ()
    share_id: str | None = None


class ClaimUser(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in the claim's namespace."""

    uid: str
    name: str


class ClaimInfo(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    allocation: str
    """Fingerprint of the allocation result."""
    drivers: dict[str, tuple[PreparedDevice, ...] | None]
    """Devices that each driver has prepared; None for one that may have been asked and has not answered."""
    boots: dict[str, str] = {}
    """By driver: the boot id at the time when it prepared the claim."""
    users: tuple[ClaimUser, ...] = ()
    leaving: bool = False
    """Drivers were asked, or are about to be asked, to unprepare it."""

    @property
    def prepared(self) -> bool:
        """Whether all its drivers have prepared it, in this boot or an earlier one."""
        return not self.leaving and all(devices is not None for devices in self.drivers.values())

    def used_by(self, uid: str) -> bool:
        return any(user.uid == uid for user in self.users)

    def with_user(self, user: ClaimUser) -> "ClaimInfo":
        return self if self.used_by(user.uid) else msgspec.structs.replace(self, users=(*self.users, user))

    def without_user(self, uid: str) -> "ClaimInfo":
        return msgspec.structs.replace(self, users=tuple(user for user in self.users if user.uid != uid))

    def ready(self, driver: str, boot: str) -> bool:
        """Whether a driver has prepared it since the machine booted."""
        return self.drivers[driver] is not None and self.boots.get(driver) == boot

    def with_drivers(self, drivers: Mapping[str, tuple[PreparedDevice, ...] | None], boot: str) -> "ClaimInfo":
        boots = {**self.boots, **dict.fromkeys(drivers, boot)}
        return msgspec.structs.replace(self, drivers={**self.drivers, **drivers}, boots=boots)

    def without_drivers(self, names: Iterable[str]) -> "ClaimInfo":
        gone = set(names)
        drivers = {name: devices for name, devices in self.drivers.items() if name not in gone}
        boots = {name: boot for name, boot in self.boots.items() if name not in gone}
        return msgspec.structs.replace(self, drivers=drivers, boots=boots)


def new_claim(claim: ResourceClaim) -> ClaimInfo:
    return ClaimInfo(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        allocation=fingerprint(claim.allocated),
        drivers=dict.fromkeys(dict.fromkeys(device.driver for device in claim.allocated)),
    )


def fingerprint(results: Iterable[AllocatedDevice]) -> str:
    words = [[*device.identity, device.request, device.share_id] for device in results]
    return hashlib.blake2b(msgspec.json.encode(words), digest_size=12).hexdigest()

"""Allocated devices: the claims that hold them, and the capacity taken from shared ones."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podwire.objects import quantity
from podwire.objects.claims import AllocatedDevice
from podwire.scheduler.claims.devices import Identity

NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class _Entry:
    holder: str
    devices: tuple[AllocatedDevice, ...]


@dataclass(slots=True)
class _Shares:
    holders: Counter[str] = field(default_factory=Counter)
    amounts: Counter[str] = field(default_factory=Counter)


class AllocatedDevices:
    """Allocation results by the claim's uid. Devices with admin access do not count as held."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self.held: dict[Identity, str] = {}
        """Exclusively held devices, with NAMESPACE/NAME of the claim."""
        self._shared: dict[Identity, _Shares] = {}
        self.changes: Counter[tuple[str, str]] = Counter()
        """Counts allocations and releases per pool (driver, pool name); part of the search cache's key."""

    def put(self, uid: str, holder: str, devices: Sequence[AllocatedDevice]) -> bool:
        """Records the devices of a claim. Returns whether devices that it held before became free."""
        known = self._entries.get(uid)
        if known is not None and known.devices == tuple(devices):
            return False
        freed = self.drop(uid)
        if devices:
            self._entries[uid] = _Entry(holder, tuple(devices))
            for device in devices:
                self._add(holder, device)
        return freed

    def drop(self, uid: str) -> bool:
        entry = self._entries.pop(uid, None)
        for device in entry.devices if entry else ():
            self._remove(entry.holder if entry else "", device)
        return entry is not None

    def copy(self) -> "AllocatedDevices":
        """Returns the same allocations; later changes count in one of the two only."""
        other = AllocatedDevices()
        other._entries, other.held, other.changes = self._entries.copy(), self.held.copy(), self.changes.copy()
        other._shared = {
            identity: _Shares(shares.holders.copy(), shares.amounts.copy()) for identity, shares in self._shared.items()
        }
        return other

    def shares(self, identity: Identity) -> Mapping[str, int]:
        """Returns the consumed capacities of a shared device, in nanos."""
        known = self._shared.get(identity)
        return known.amounts if known else NOTHING

    def holders(self, identity: Identity) -> Sequence[str]:
        if identity in self.held:
            return [self.held[identity]]
        known = self._shared.get(identity)
        return sorted(known.holders) if known else []

    def _add(self, holder: str, device: AllocatedDevice) -> None:
        if device.admin_access:
            return
        self.changes[device.identity[:2]] += 1
        if device.share_id is None:
            self.held[device.identity] = holder
            return
        shares = self._shared.setdefault(device.identity, _Shares())
        shares.holders[holder] += 1
        shares.amounts.update(_nanos(device))

    def _remove(self, holder: str, device: AllocatedDevice) -> None:
        if device.admin_access:
            return
        self.changes[device.identity[:2]] += 1
        if device.share_id is None:
            if self.held.get(device.identity) == holder:
                del self.held[device.identity]
            return
        shares = self._shared[device.identity]
        shares.holders -= Counter((holder,))
        shares.amounts.subtract(_nanos(device))
        if not shares.holders:
            del self._shared[device.identity]


def _nanos(device: AllocatedDevice) -> dict[str, int]:
    return {name: quantity.parse(str(amount)).nano for name, amount in device.consumed_capacity.items()}

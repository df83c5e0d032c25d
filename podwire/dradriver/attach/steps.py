"""Steps that attach a device to a pod and restore it, one netlink message or batch each. Values only.

Most of what a step does in the pod ends when the link leaves: addresses, routes, neighbours and sysctls are the link's,
and what is left of a link made for a claim goes with it. So those steps have no inverse of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from podwire.dradriver.parameters.settings import Interface, Made, Neighbour, Route, Vrf
from podwire.failpoints import declare
from podwire.linux.net.borrow import LinkSnapshot
from podwire.linux.net.link_attributes import Attributes
from podwire.linux.net.snapshot_addresses import SavedAddress
from podwire.linux.net.snapshot_neighbours import SavedNeighbour
from podwire.linux.net.snapshot_routes import SavedRoute
from podwire.linux.net.snapshot_rules import SavedRule
from podwire.linux.values import Bucket, Rule


class Step:
    """`name` says what is done, `done` is the failpoint behind it."""

    name: ClassVar[str]
    done: ClassVar[str]

    def __init_subclass__(cls, *, name: str, done: str) -> None:
        cls.name = name
        cls.done = declare(f"network-driver.{done}", f"{name}: done for one device, and nothing after it")


@dataclass(frozen=True)
class TakeDown(Step, name="mark the link and take it down", done="down"):
    tag: str


@dataclass(frozen=True)
class Move(Step, name="move the link into the pod", done="moved"):
    attributes: Attributes
    """With the name that it gets there."""


@dataclass(frozen=True)
class Make(Step, name="make the link in the pod", done="made"):
    made: Made
    attributes: Attributes
    parent: str
    host_end: str
    tag: str
    unfinished: str
    """Its name until it is marked, where the kernel makes it without what it can be known by."""


@dataclass(frozen=True)
class SetMtu(Step, name="set the MTU that was leased", done="mtu"):
    mtu: int


@dataclass(frozen=True)
class SetSysctls(Step, name="set sysctls", done="sysctls"):
    values: Mapping[str, str]


@dataclass(frozen=True)
class AddAddresses(Step, name="add addresses", done="addresses"):
    given: tuple[Interface, ...] = ()
    carried: tuple[SavedAddress, ...] = ()


@dataclass(frozen=True)
class BringUp(Step, name="bring the link up", done="up"):
    pass


@dataclass(frozen=True)
class SetFeatures(Step, name="set ethtool features", done="features"):
    features: Mapping[str, bool]
    flags: Mapping[str, bool]


@dataclass(frozen=True)
class DetachPrograms(Step, name="detach eBPF programs", done="programs"):
    pass


@dataclass(frozen=True)
class JoinVrf(Step, name="join the VRF", done="vrf"):
    vrf: Vrf


@dataclass(frozen=True)
class AddRoutes(Step, name="add routes", done="routes"):
    given: tuple[Route, ...] = ()
    carried: tuple[SavedRoute, ...] = ()


@dataclass(frozen=True)
class AddRules(Step, name="add rules", done="rules"):
    given: tuple[Rule, ...] = ()
    carried: tuple[SavedRule, ...] = ()


@dataclass(frozen=True)
class AddNeighbours(Step, name="add neighbours", done="neighbours"):
    given: tuple[Neighbour, ...] = ()
    carried: tuple[SavedNeighbour, ...] = ()


@dataclass(frozen=True)
class Shape(Step, name="limit the bandwidth", done="shaped"):
    bucket: Bucket
    host_end: str
    """Where what comes in is held back; empty: by an ifb in the pod."""
    queue: str
    tag: str


@dataclass(frozen=True)
class TakeAway(Step, name="take away what is leased no more", done="taken-away"):
    routes: tuple[Route, ...] = ()
    addresses: tuple[Interface, ...] = ()


@dataclass(frozen=True)
class DeleteQueue(Step, name="delete the queue of what comes in", done="queue-deleted"):
    queue: str


@dataclass(frozen=True)
class DeleteRules(Step, name="delete rules", done="rules-deleted"):
    given: tuple[Rule, ...] = ()
    carried: tuple[SavedRule, ...] = ()


@dataclass(frozen=True)
class DeleteVrf(Step, name="delete the VRF", done="vrf-deleted"):
    vrf: Vrf


@dataclass(frozen=True)
class Return(Step, name="move the link back to the host", done="returned"):
    snapshot: LinkSnapshot
    spare: str
    """Its name if another link has taken its own."""


@dataclass(frozen=True)
class Unmake(Step, name="delete the link", done="deleted"):
    host_end: str


@dataclass(frozen=True)
class Restore(Step, name="make the link what it was", done="restored"):
    snapshot: LinkSnapshot

"""Actions for a device and their undo: tables, and a model of two namespaces."""

import os
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from podwire.dradriver.attach import steps
from podwire.dradriver.attach.link_match import find_link
from podwire.dradriver.attach.plan import bucket, change, inverse, plan
from podwire.dradriver.attach.records import DeviceRecords, Record, Terms
from podwire.dradriver.claims.allocations import Allocation, ClaimRef, Device, PodRef
from podwire.dradriver.parameters.settings import KINDS, Made, Neighbour, Route, Rule, Settings, Vrf
from podwire.durable.files import Durability
from podwire.linux.net.borrow import LinkSnapshot, changes_to, select_rules
from podwire.linux.net.link_attributes import Attributes, LinkDetails
from podwire.linux.net.snapshot_addresses import SavedAddress
from podwire.linux.net.snapshot_neighbours import SavedNeighbour
from podwire.linux.net.snapshot_routes import SavedRoute
from podwire.linux.net.snapshot_rules import SavedRule
from podwire.linux.net.sysfs import Hardware
from podwire.linux.values import Link

MAC = "02:00:00:00:00:01"
MAIN = 254


def address(text, *, scope=0, flags=0, label="nic0"):
    it = ip_interface(text)
    packed = it.ip.packed.hex()
    named = ((3, (label + "\0").encode().hex()),) if it.version == 4 else ()
    return SavedAddress(
        2 if it.version == 4 else 10, it.network.prefixlen, scope, flags, ((1, packed), (2, packed), *named)
    )


def route(text, gateway="", *, table=MAIN, source=""):
    it = ip_network(text)
    result = [(1, it.network_address.packed.hex())]
    result += [(5, ip_address(gateway).packed.hex())] if gateway else []
    result += [(7, ip_address(source).packed.hex())] if source else []
    scope = 0 if gateway else 253
    return SavedRoute(2 if it.version == 4 else 10, it.prefixlen, 0, 0, table, 4, scope, 1, 0, tuple(result))


def rule(table, *, iif="", priority=500):
    return SavedRule(2, 0, 0, 0, table, 1, 0, iif, "", ((6, priority.to_bytes(4, "little").hex()),))


NEIGHBOUR = SavedNeighbour(2, 0x80, 0, 0, ((1, ip_address("10.9.1.254").packed.hex()), (2, "0200000000fe")))
SNAPSHOT = LinkSnapshot(
    name="nic0",
    kind="veth",
    mac=MAC,
    permanent_mac="",
    peer=7,
    attributes=Attributes(mac=MAC, mtu=1400, queue=777, alias="cable", up=True, promiscuous=False),
    addresses=(address("10.9.1.1/24"), address("fd09::1/96"), address("fe80::1/64", scope=253)),
    routes=(route("10.77.0.0/16", "10.9.1.254"), route("10.78.0.0/16"), route("10.79.0.0/16", "10.9.1.254", table=100)),
    rules=(rule(100), rule(100, iif="nic0", priority=501), rule(200, iif="nic0"), rule(100, iif="eth7")),
    neighbours=(NEIGHBOUR,),
    features=("rx-gro",),
    changeable=("rx-gro", "tx-gso"),
    sysctls={"ipv4/arp_ignore": "2"},
)


def recorded(settings=None, *, snapshot=SNAPSHOT, addresses=None):
    wanted = settings or Settings(name="net1")
    made = wanted.made.kind != ""
    allocation = Allocation(
        claim=ClaimRef(namespace="default", name="claim", uid="claim-uid"),
        pod=PodRef(namespace="default", name="web", uid="pod-uid"),
        request="nic",
        pool="node-1",
        share_id="share" if made else "",
        device=Device(
            name="nic0", link="nic0", ifindex=4, kind="veth", mac=MAC, mtu=1400, shared=made, hardware=Hardware()
        ),
        settings=wanted,
    )
    return Record(
        allocation=allocation, boot="b", mac=wanted.mac or MAC, addresses=addresses, snapshot=None if made else snapshot
    )


def names(plan_):
    return [type(item).__name__ for item in plan_]


def of(kind, plan_):
    return [item for item in plan_ if isinstance(item, kind)]


BARE = SNAPSHOT._replace(addresses=(), routes=(), rules=(), neighbours=())

ORDERS = {
    "nothing to say": (Settings(name="net1"), BARE, "TakeDown Move BringUp"),
    "what the host has": (
        Settings(name="net1"),
        SNAPSHOT,
        "TakeDown Move AddAddresses BringUp AddRoutes AddRoutes AddRules AddNeighbours",
    ),
    "a macvlan": (Settings(name="net1", made=Made(kind="macvlan")), None, "Make BringUp"),
    "a veth with a limit": (
        Settings(name="net1", made=Made(kind="veth", bridge="br0"), bits_per_second=10**9),
        None,
        "Make BringUp Shape",
    ),
    "everything": (
        Settings(
            name="net1",
            addresses=(ip_interface("10.1.0.1/24"),),
            routes=(
                Route(destination=ip_network("0.0.0.0/0"), gateway=ip_address("10.1.0.254")),
                Route(destination=ip_network("10.2.0.0/24"), scope=253),
            ),
            rules=(Rule(priority=1, table=7, source=ip_network("10.1.0.1/32")),),
            neighbours=(Neighbour(address=ip_address("10.1.0.254"), mac=MAC),),
            forwarding=True,
            features={"rx-gro": False},
            detach_ebpf=True,
            vrf=Vrf(name="red", table=1001),
            bits_per_second=10**9,
        ),
        BARE,
        (
            "TakeDown Move SetSysctls AddAddresses BringUp SetFeatures DetachPrograms JoinVrf AddRoutes AddRoutes "
            "AddRules AddNeighbours Shape"
        ),
    ),
}


@pytest.mark.parametrize("case", ORDERS)
def test_steps_come_in_the_order_that_the_kernel_needs(case):
    settings, snapshot, wanted = ORDERS[case]
    assert names(plan(recorded(settings, snapshot=snapshot))) == wanted.split()


def test_an_interface_that_waits_on_the_host_is_moved_and_not_made():
    record = recorded(Settings(name="net1", made=Made(kind="macvlan"), dhcp=True))
    assert names(plan(record, waits_on_host=True)) == ["TakeDown", "Move", "BringUp"]
    assert names(inverse(record, plan(record, waits_on_host=True))) == ["Unmake"]


def test_plan_changes_only_the_requested_settings():
    (move,) = of(steps.Move, plan(recorded(Settings(name="net1", mtu=9000))))
    assert move.attributes == Attributes(name="net1", mtu=9000)


def test_addresses_of_the_host_move_without_label_and_duplicate_detection():
    (step,) = of(steps.AddAddresses, plan(recorded()))
    assert [str(item.interface) for item in step.carried] == ["10.9.1.1/24", "fd09::1/96"]
    assert [item.flags for item in step.carried] == [0, 2]
    assert all(kind != 3 for item in step.carried for kind, _ in item.attributes)


GIVEN = {
    "by the claim": (Settings(name="net1", addresses=(ip_interface("10.5.0.1/24"),)), None, "10.5.0.1/24"),
    "by the pool": (Settings(name="net1", pool="p"), (ip_interface("10.6.0.1/24"),), "10.6.0.1/24"),
    "by DHCP, nothing yet": (Settings(name="net1", dhcp=True), None, ""),
    "none": (Settings(name="net1", addresses=()), None, ""),
}


@pytest.mark.parametrize("case", GIVEN)
def test_addresses_that_are_given_are_the_only_ones(case):
    settings, addresses, wanted = GIVEN[case]
    result = [
        (item.given, item.carried) for item in of(steps.AddAddresses, plan(recorded(settings, addresses=addresses)))
    ]
    assert result == ([((ip_interface(wanted),), ())] if wanted else [])


ROUTES = {
    "all, where the addresses are the host's": (
        Settings(name="net1"),
        {"10.77.0.0/16", "10.78.0.0/16", "10.79.0.0/16"},
    ),
    "those that need no gateway, where they are others": (
        Settings(name="net1", addresses=(ip_interface("10.5.0.1/24"),)),
        {"10.78.0.0/16"},
    ),
    "those whose gateway is near by another route": (
        Settings(
            name="net1",
            addresses=(ip_interface("10.5.0.1/24"),),
            routes=(Route(destination=ip_network("10.9.1.254/32"), scope=253),),
        ),
        {"10.77.0.0/16", "10.78.0.0/16", "10.79.0.0/16"},
    ),
    "those that nobody gave another way": (
        Settings(name="net1", routes=(Route(destination=ip_network("10.78.0.0/16"), gateway=ip_address("10.9.1.9")),)),
        {"10.77.0.0/16", "10.79.0.0/16"},
    ),
}


@pytest.mark.parametrize("case", ROUTES)
def test_of_the_hosts_routes_the_pod_gets(case):
    settings, wanted = ROUTES[case]
    found_ = {str(item.destination) for step in of(steps.AddRoutes, plan(recorded(settings))) for item in step.carried}
    assert found_ == wanted


def test_a_route_from_an_address_that_the_pod_has_not_stays_on_the_host():
    snapshot = SNAPSHOT._replace(
        routes=(route("10.70.0.0/16", source="10.9.1.1"), route("10.71.0.0/16", source="10.0.0.1"))
    )
    (step,) = of(steps.AddRoutes, plan(recorded(snapshot=snapshot)))
    assert [str(item.destination) for item in step.carried] == ["10.70.0.0/16"]


def test_rules_go_along_with_the_tables_that_they_lead_to_under_the_new_name():
    (step,) = of(steps.AddRules, plan(recorded()))
    assert [(item.table, item.input) for item in step.carried] == [(100, ""), (100, "net1")]


def test_in_a_vrf_routes_are_in_its_table_and_rules_stay_behind():
    settings = Settings(
        name="net1",
        vrf=Vrf(name="red", table=1001),
        routes=(Route(destination=ip_network("0.0.0.0/0"), gateway=ip_address("10.9.1.254")),),
    )
    found_ = plan(recorded(settings))
    tables = {item.table for step in of(steps.AddRoutes, found_) for item in (*step.given, *step.carried)}
    assert tables == {1001, 100}
    assert of(steps.AddRules, found_) == []


@pytest.mark.parametrize("kind", ["vlan", "ipvlan"])
def test_kinds_that_not_every_kernel_has_are_planned_as_all_others(kind):
    settings = Settings(name="net1", made=Made(kind=kind, vlan=5, mode="l3" if kind == "ipvlan" else ""))
    (step,) = of(steps.Make, plan(recorded(settings)))
    assert (step.made.kind, step.parent, step.attributes.mac) == (kind, "nic0", MAC if kind == "vlan" else None)


OLD, NEW = ip_interface("10.50.0.2/24"), ip_interface("10.50.0.3/24")
WAY, OTHER = (
    Route(destination=ip_network("10.60.0.0/16"), gateway=ip_address(f"10.50.0.{number}")) for number in (1, 9)
)
LEASE = Terms(addresses=(OLD,), routes=(WAY,), mtu=1300)
NAMED = Route(destination=ip_network("10.61.0.0/16"), gateway=ip_address("10.50.0.7"))

CHANGES = {
    "nothing": (LEASE, (), []),
    "a route": (replace(LEASE, routes=(OTHER,)), (), [steps.TakeAway((WAY,)), steps.AddRoutes((OTHER,))]),
    "no route": (replace(LEASE, routes=()), (), [steps.TakeAway((WAY,))]),
    "the MTU": (replace(LEASE, mtu=1200), (), [steps.SetMtu(1200)]),
    "no MTU": (replace(LEASE, mtu=None), (), [steps.SetMtu(1400)]),
    "all is lost": (Terms(lapse="no"), (NAMED,), [steps.TakeAway((WAY,), (OLD,))]),
    "the address": (
        replace(LEASE, addresses=(NEW,)),
        (NAMED,),
        [steps.TakeAway((), (OLD,)), steps.AddAddresses((NEW,)), steps.AddRoutes((NAMED, WAY))],
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_change_of_a_lease_changes_only_the_differences(case):
    terms, named, expected = CHANGES[case]
    settings = Settings(name="net1", dhcp=True, routes=named)
    before = recorded(settings, snapshot=SNAPSHOT._replace(routes=(), neighbours=())).under(LEASE)
    assert list(change(before, before.under(terms), [OLD])) == expected


def test_mtu_of_the_claim_takes_precedence_over_the_lease():
    before = recorded(Settings(name="net1", dhcp=True, mtu=1450), snapshot=None).under(LEASE)
    assert change(before, before.under(replace(LEASE, mtu=1200)), [OLD]) == ()
    assert of(steps.SetMtu, plan(before)) == []


def test_step_that_was_done_before_a_crash_is_not_repeated():
    before = recorded(Settings(name="net1", dhcp=True), snapshot=None).under(LEASE)
    done = change(before, before.under(replace(LEASE, addresses=(NEW,))), [NEW])
    assert of(steps.AddAddresses, done) == []


def test_rules_that_concern_a_link_name_it_or_lead_to_its_tables():
    rules = (rule(100), rule(101), rule(101, iif="nic0"), rule(254))
    assert select_rules("nic0", (route("10.1.0.0/16", table=100), route("10.2.0.0/16")), rules) == (rules[0], rules[2])


def test_setting_with_the_right_value_is_not_written():
    assert changes_to(Attributes(mtu=1, mac="a"), Attributes(mtu=1, mac="b", queue=3)) == Attributes(mac="a")


@pytest.mark.parametrize(("bits", "mtu"), [(1, 68), (10**6, 1500), (10**9, 9000), (400 * 10**9, 1500)])
def test_a_bucket_lets_every_packet_pass_and_no_more_than_the_rate(bits, mtu):
    found_ = bucket(bits, mtu)
    assert found_.rate == max(bits // 8, 1)
    assert mtu <= found_.burst <= found_.limit < 1 << 32


def link(ifindex, *, name="x", kind="veth", mac="02:00:00:00:00:99", peer=7, alias=""):
    return LinkDetails(Link(ifindex, name, kind, mac, 1500, True, "up", peer=peer, alias=alias))


TAG = recorded().tag
FINDS = {
    "by its mark": ([link(1), link(2, alias=TAG)], 2),
    "by its mark before its MAC address": ([link(1, mac=MAC), link(2, alias=TAG)], 2),
    "by its MAC address": ([link(1), link(2, mac=MAC)], 2),
    "not by another's mark": ([link(1, alias=TAG, kind="bridge")], None),
    "not one whose cable goes elsewhere": ([link(1, alias=TAG, mac=MAC, peer=8)], None),
    "not any": ([link(1)], None),
}


@pytest.mark.parametrize("case", FINDS)
def test_a_device_is_found(case):
    links, wanted = FINDS[case]
    there = find_link(recorded(), links)
    assert (there and there.link.ifindex) == wanted


# A model of two namespaces, and whatever may be asked for.

addresses_ = st.sampled_from([ip_interface(name) for name in ("10.9.1.1/24", "10.5.0.1/32", "fd00::1/64")])
networks_ = st.sampled_from([ip_network(name) for name in ("10.60.0.0/16", "0.0.0.0/0", "10.9.1.254/32")])
gateways_ = st.one_of(st.none(), st.just(ip_address("10.9.1.254")))
maybe = st.one_of
settings_ = st.builds(
    Settings,
    name=st.sampled_from(["net1", "nic0"]),
    made=st.builds(Made, kind=st.sampled_from(KINDS), bridge=st.just("br0"), vni=st.just(1), vlan=st.just(1)),
    mtu=maybe(st.none(), st.integers(68, 9000)),
    mac=maybe(st.none(), st.just("02:00:00:00:00:aa")),
    addresses=maybe(st.none(), st.lists(addresses_, max_size=2, unique=True).map(tuple)),
    dhcp=st.booleans(),
    routes=st.lists(st.builds(Route, destination=networks_, gateway=gateways_), max_size=3).map(tuple),
    rules=st.lists(st.builds(Rule, priority=st.integers(0, 3), table=st.just(100)), max_size=2).map(tuple),
    vrf=maybe(st.none(), st.just(Vrf(name="red", table=1001))),
    forwarding=maybe(st.none(), st.booleans()),
    features=st.dictionaries(st.sampled_from(["rx-gro", "tx-gso"]), st.booleans()),
    detach_ebpf=st.booleans(),
    bits_per_second=maybe(st.none(), st.integers(1, 10**12)),
)
snapshots_ = st.sampled_from([SNAPSHOT, BARE, SNAPSHOT._replace(attributes=SNAPSHOT.attributes._replace(up=False))])


class Model:
    """A device on the host or in the pod, what it has, and what is made beside it."""

    def __init__(self, snapshot):
        self.where = "host" if snapshot else None
        self.name = snapshot.name if snapshot else ""
        self.own = snapshot and as_had(snapshot)
        self.beside = set()

    def state(self):
        return self.where, self.name, self.own, self.beside

    def do(self, step):  # noqa: C901 - one line for each kind of step
        match step:
            case steps.TakeDown():
                self.own = {**self.own, "attributes": self.own["attributes"]._replace(up=False, alias=step.tag)}
            case steps.Move() | steps.Return():
                here, there = ("host", "pod") if isinstance(step, steps.Move) else ("pod", "host")
                if self.where == here:
                    arriving = arriving_attributes(step)
                    self.where, self.name = there, arriving.name
                    kept = {key: value for key, value in self.own.items() if key in ("attributes", "features")}
                    wanted = arriving._replace(name=None)._asdict()
                    changed = {key: value for key, value in wanted.items() if value is not None}
                    self.own = {**kept, "attributes": kept["attributes"]._replace(**changed)}
            case steps.Make():
                self.where, self.name, self.own = "pod", step.attributes.name, {"attributes": step.attributes}
                self.beside |= {step.host_end} - {""}
            case steps.Unmake():
                self.where, self.name, self.own = None, "", None
                self.beside -= {step.host_end}
            case steps.Restore():
                assert self.where == "host"
                self.own = as_had(step.snapshot)
            case steps.BringUp():
                self.own = {**self.own, "attributes": self.own["attributes"]._replace(up=True)}
            case steps.SetFeatures():
                self.own = {**self.own, "features": step.features}
            case steps.AddRules():
                self.beside |= set(step.given) | set(step.carried)
            case steps.DeleteRules():
                self.beside -= set(step.given) | set(step.carried)
            case steps.JoinVrf():
                self.beside.add(step.vrf)
            case steps.DeleteVrf():
                self.beside.discard(step.vrf)
            case steps.Shape() if not step.host_end:
                self.beside.add(step.queue)
            case steps.DeleteQueue():
                self.beside.discard(step.queue)
            case _:
                self.own = {**self.own, type(step).__name__: step}


def arriving_attributes(step):
    if isinstance(step, steps.Move):
        return step.attributes
    return step.snapshot.attributes._replace(name=step.snapshot.name, alias=None, up=None)


def as_had(snapshot):
    return {"attributes": snapshot.attributes, "features": snapshot.features, "of the link": snapshot}


@given(settings=settings_, snapshot=snapshots_, data=st.data())
def test_inverse_undoes_any_part_of_a_plan(settings, snapshot, data):
    record = recorded(settings, snapshot=snapshot)
    whole = plan(record)
    done = data.draw(st.integers(0, len(whole)))
    model = Model(record.snapshot)
    before = model.state()
    for item in whole[:done]:
        model.do(item)
    for item in inverse(record, whole[:done]):
        model.do(item)
    assert model.state() == before


@given(settings=settings_, snapshot=snapshots_, data=st.data())
def test_the_inverse_of_a_whole_plan_undoes_any_part_of_it_too(settings, snapshot, data):
    """A driver that was killed does not know how far it came."""
    record = recorded(settings, snapshot=snapshot)
    whole = plan(record)
    model = Model(record.snapshot)
    before = model.state()
    for item in whole[: data.draw(st.integers(0, len(whole)))]:
        model.do(item)
    for item in inverse(record, whole):
        model.do(item)
    assert model.state() == before


@given(settings=settings_, snapshot=snapshots_)
def test_a_record_that_is_read_equals_the_one_that_was_written(settings, snapshot):
    record = recorded(settings, snapshot=snapshot)
    with TemporaryDirectory() as state:
        DeviceRecords(Path(state)).put(record.file_key, record)
        assert DeviceRecords(Path(state)).all() == (record,)


def test_a_record_of_a_killed_driver_is_fsynced_before_its_claim_is_answered(tmp_path, monkeypatch):
    record = recorded(Settings(name="net1"))
    DeviceRecords(tmp_path).put(record.file_key, record, Durability.PROCESS_DEATH)  # killed before the fsync
    fsynced = []
    monkeypatch.setattr(os, "fsync", lambda file: fsynced.append(Path(f"/proc/self/fd/{file}").readlink().name))
    records = DeviceRecords(tmp_path)
    records.fsync_claim(record.allocation.claim.uid)
    assert fsynced[0] == f"{record.file_key}.json".partition("/")[2]
    fsynced.clear()
    records.fsync_claim(record.allocation.claim.uid)
    assert fsynced == [], "it is on the disk"

"""A client's decisions: on its way to a lease, and while it has one."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.dhcp import asking, leases, options
from podwire.protocols.dhcp.asking import Asking, Client, Stage
from podwire.protocols.dhcp.leases import Lease, Phase
from podwire.protocols.dhcp.messages import Message, Type
from podwire.protocols.dhcp.options import INFINITE, Malformed

MAC, ID = bytes.fromhex("020000000001"), b"\xff\1\2\3"
CLIENT = Client(mac=MAC, client_id=ID, hostname="web")
SERVER, OTHER = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
ADDRESS = IPv4Address("10.0.0.50")
VIA = bytes.fromhex("02000000000a")
SELECTING = Asking(client=CLIENT, stage=Stage.SELECTING, xid=7)
REQUESTING = replace(SELECTING, stage=Stage.REQUESTING, wanted=ADDRESS, server=SERVER)
REBOOTING = replace(SELECTING, stage=Stage.REBOOTING, wanted=ADDRESS)


def reply(kind, more=None, **fields):
    document = {
        53: bytes((kind,)),
        54: SERVER.packed,
        51: (3600).to_bytes(4),
        1: bytes((255, 255, 255, 0)),
        **(more or {}),
    }
    return Message(**{"op": 2, "xid": 7, "mac": MAC, "yiaddr": ADDRESS, "options": document, **fields})


def heard(at, message):
    return asking.heard(at, message, VIA, 99)


def test_an_offer_is_requested_and_an_ack_is_a_lease():
    requesting = heard(SELECTING, reply(Type.OFFER))
    assert requesting == REQUESTING
    lease = heard(requesting, reply(Type.ACK))
    assert isinstance(lease, Lease)
    assert (str(lease.address), lease.server, lease.via) == ("10.0.0.50/24", SERVER, VIA)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        pytest.param(SELECTING, reply(Type.OFFER, xid=8), id="another conversation"),
        pytest.param(SELECTING, reply(Type.OFFER, mac=bytes(6)), id="another client"),
        pytest.param(SELECTING, reply(Type.OFFER, {61: b"other"}), id="another client's id"),
        pytest.param(SELECTING, reply(Type.OFFER, op=1), id="a request"),
        pytest.param(SELECTING, reply(Type.ACK), id="a confirmation of nothing"),
        pytest.param(SELECTING, reply(Type.NAK), id="a refusal of nothing"),
        pytest.param(SELECTING, reply(Type.OFFER, {54: b"\1"}), id="an offer of no server"),
        pytest.param(SELECTING, reply(Type.OFFER, {51: bytes(4)}), id="an offer of no time"),
        pytest.param(SELECTING, reply(Type.OFFER, yiaddr=IPv4Address(0)), id="an offer of no address"),
        pytest.param(SELECTING, reply(Type.OFFER, yiaddr=IPv4Address("224.0.0.1")), id="an offer of a group"),
        pytest.param(REQUESTING, reply(Type.OFFER), id="the offer again"),
        pytest.param(REQUESTING, reply(Type.ACK, {54: OTHER.packed}), id="another server's confirmation"),
        pytest.param(REQUESTING, reply(Type.NAK, {54: OTHER.packed}), id="another server's refusal"),
        pytest.param(REQUESTING, reply(Type.ACK, yiaddr=ADDRESS + 1), id="another address"),
        pytest.param(REBOOTING, reply(Type.ACK, yiaddr=ADDRESS + 1), id="another address than remembered"),
    ],
)
def test_an_unexpected_message_is_ignored(at, message):
    assert heard(at, message) is None


def test_a_server_may_repeat_the_clients_id():
    assert heard(SELECTING, reply(Type.OFFER, {61: ID})) == REQUESTING


def test_a_nak_restarts_with_a_new_transaction_and_a_back_off():
    again = heard(REQUESTING, reply(Type.NAK, {56: b"no\nroom"}))
    assert (again.stage, again.xid, again.wanted, again.server) == (Stage.SELECTING, 99, None, None)
    assert (again.refusal, asking.pause(again)) == ("noroom", 1)
    assert [asking.pause(replace(again, refusals=number)) for number in (2, 3, 50)] == [2, 4, 64]
    assert asking.pause(replace(again, tries=1)) == 0


def test_a_remembered_address_that_is_refused_costs_no_time():
    again = heard(REBOOTING, reply(Type.NAK))
    assert (again.stage, asking.pause(again)) == (Stage.SELECTING, 0)
    assert heard(REBOOTING, reply(Type.ACK)).address.ip == ADDRESS


def silences(at, many):
    for _ in range(many):
        at = asking.unanswered(at, 99)
    return at


@pytest.mark.parametrize(
    ("at", "many", "then"),
    [
        pytest.param(SELECTING, 1, replace(SELECTING, tries=1), id="asks again"),
        pytest.param(SELECTING, 9, replace(SELECTING, tries=9), id="and again"),
        pytest.param(REQUESTING, 2, replace(REQUESTING, tries=2), id="asks its server again"),
        pytest.param(
            REQUESTING, 3, replace(SELECTING, xid=99, wanted=ADDRESS), id="looks for another, and names the address"
        ),
        pytest.param(REBOOTING, 2, replace(SELECTING, xid=99, wanted=ADDRESS), id="gives up to remember"),
    ],
)
def test_retransmission_without_an_answer(at, many, then):
    assert silences(at, many) == then


@pytest.mark.parametrize(
    ("at", "kind", "there", "absent"),
    [
        pytest.param(SELECTING, Type.DISCOVER, {}, {50, 54}, id="discover"),
        pytest.param(replace(SELECTING, wanted=ADDRESS), Type.DISCOVER, {50: ADDRESS.packed}, {54}, id="with a wish"),
        pytest.param(REQUESTING, Type.REQUEST, {50: ADDRESS.packed, 54: SERVER.packed}, set(), id="request"),
        pytest.param(REBOOTING, Type.REQUEST, {50: ADDRESS.packed}, {54}, id="reboot"),
    ],
)
def test_messages_have_the_fields_that_the_rfc_demands_in_each_state(at, kind, there, absent):
    said = asking.spoken(at, 3.7)
    assert (said.type, said.xid, said.secs, said.ciaddr) == (kind, 7, 3, IPv4Address(0))
    assert there.items() <= said.options.items()
    assert not absent & set(said.options)
    assert (said.options[61], said.options[12]) == (ID, b"web")
    wishes = said.options[55]
    assert wishes.index(121) < wishes.index(3), "RFC 3442"


def lease(**more):
    return replace(leases.read(reply(Type.ACK)), **more)


def test_a_renewal_has_the_address_in_ciaddr_only():
    said = asking.prolonging(CLIENT, lease(), 7)
    assert (said.type, said.ciaddr) == (Type.REQUEST, ADDRESS)
    assert not {50, 54} & set(said.options)


def test_a_release_and_a_decline_name_server_and_address():
    released, declined = asking.releasing(CLIENT, lease(), 7), asking.declining(CLIENT, lease(), 7)
    assert (released.type, released.ciaddr, released.options[54]) == (Type.RELEASE, ADDRESS, SERVER.packed)
    assert (declined.type, declined.ciaddr) == (Type.DECLINE, IPv4Address(0))
    assert (declined.options[50], declined.options[54]) == (ADDRESS.packed, SERVER.packed)
    assert not {12, 55, 57} & (set(released.options) | set(declined.options)), "RFC 2131, table 5"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(reply(Type.ACK, {51: (60).to_bytes(4)}), 60, id="more time"),
        pytest.param(reply(Type.NAK, {56: b"gone"}), "gone", id="no more"),
        pytest.param(reply(Type.NAK), "without a reason", id="no more, for no reason"),
        pytest.param(reply(Type.ACK, yiaddr=ADDRESS + 1), None, id="another address"),
        pytest.param(reply(Type.ACK, {51: b""}), None, id="no time"),
        pytest.param(reply(Type.OFFER), None, id="an offer"),
        pytest.param(reply(Type.ACK, xid=1), None, id="another conversation"),
    ],
)
def test_an_answer_to_a_renewal_means(message, expected):
    found = asking.prolonged(CLIENT, lease(), 7, message)
    assert (found.seconds if isinstance(found, Lease) else found) == expected


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_waits_grow_to_a_minute_and_differ_by_chance(tries, chance):
    wait = asking.patience(tries, chance)
    assert 0.75 <= wait <= 80
    assert asking.patience(tries, 0) < asking.patience(tries, 1) < asking.patience(tries + 2, 0) or tries > 4


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        pytest.param({1: b"\xff"}, "unreadable", (1,), id="an unreadable mask is reported"),
        pytest.param({26: (1400).to_bytes(2)}, "mtu", 1400, id="MTU"),
        pytest.param({26: (60).to_bytes(2)}, "mtu", None, id="an MTU that no link can have"),
        pytest.param({58: (100).to_bytes(4), 59: (200).to_bytes(4)}, "renew_after", 100, id="T1"),
        pytest.param({58: (300).to_bytes(4), 59: (200).to_bytes(4)}, "renew_after", 1800, id="T1 behind T2"),
        pytest.param({59: (7200).to_bytes(4)}, "rebind_after", 3150, id="T2 behind the end"),
        pytest.param({}, "rebind_after", 3150, id="T2 is seven eighths"),
        pytest.param({119: b"\3lab\0"}, "search", ("lab",), id="search"),
        pytest.param({15: b"a b"}, "domain", "", id="a domain that is none"),
        pytest.param({6: OTHER.packed}, "dns", (OTHER,), id="DNS"),
    ],
)
def test_a_lease_is_read(more, field, value):
    assert getattr(leases.read(reply(Type.ACK, more)), field) == value


def test_without_a_mask_an_address_has_that_of_its_class():
    options_ = dict(reply(Type.ACK).options)
    del options_[options.MASK]
    assert leases.read(reply(Type.ACK, options=options_)).address.network == IPv4Network("10.0.0.0/8")


@pytest.mark.parametrize(
    ("more", "routes"),
    [
        pytest.param({3: SERVER.packed + OTHER.packed}, [("0.0.0.0/0", "10.0.0.1")], id="the first router"),
        pytest.param({3: bytes(4)}, [], id="no router"),
        pytest.param(
            {3: SERVER.packed, 33: bytes((192, 168, 1, 0)) + OTHER.packed},
            [("192.168.1.0/24", "10.0.0.2"), ("0.0.0.0/0", "10.0.0.1")],
            id="static routes, too",
        ),
        pytest.param(
            {3: SERVER.packed, 33: bytes((192, 168, 1, 0)) + OTHER.packed, 121: b"\x08\x0b" + OTHER.packed},
            [("11.0.0.0/8", "10.0.0.2")],
            id="classless ones and nothing else",
        ),
        pytest.param({3: SERVER.packed, 121: b"\x21"}, [("0.0.0.0/0", "10.0.0.1")], id="classless ones unreadable"),
    ],
)
def test_routes_come_from_one_kind_of_option(more, routes):
    read = leases.read(reply(Type.ACK, more)).routes
    assert [(str(item.destination), str(item.gateway)) for item in read] == routes


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"])
def test_no_interface_can_have_such_an_address(address):
    with pytest.raises(Malformed):
        leases.read(reply(Type.ACK, yiaddr=IPv4Address(address)))


@pytest.mark.parametrize(
    ("age", "phase", "left"),
    [
        (0, Phase.BOUND, 1800),
        (1799, Phase.BOUND, 1),
        (1800, Phase.RENEWING, 1350),
        (3150, Phase.REBINDING, 450),
        (3600, Phase.EXPIRED, float("inf")),
        (9999, Phase.EXPIRED, float("inf")),
    ],
)
def test_a_lease_has_a_life(age, phase, left):
    assert leases.phase(lease(), age) == (phase, left)


def test_an_infinite_lease_is_never_renewed():
    assert leases.phase(lease(seconds=INFINITE), 10**12) == (Phase.BOUND, float("inf"))


@pytest.mark.parametrize(
    ("age", "wait"),
    [
        pytest.param(1800, 675, id="half of what is left"),
        pytest.param(3090, 60, id="a minute at least"),
        pytest.param(3149, 1, id="but not beyond the phase"),
        pytest.param(3150, 225, id="half of what is left to rebind"),
    ],
)
def test_between_two_attempts_lies(age, wait):
    assert leases.retry_in(lease(), age) == wait


@given(
    st.dictionaries(st.sampled_from([1, 3, 6, 15, 26, 33, 51, 54, 56, 58, 59, 61, 119, 121]), st.binary(max_size=40)),
    st.sampled_from([SELECTING, REQUESTING, REBOOTING]),
    st.sampled_from(list(Type)),
)
def test_no_answer_makes_a_client_fall(more, at, kind):
    message = reply(kind, more)
    found = heard(at, message)
    assert found is None or isinstance(found, Asking | Lease)
    asking.prolonged(CLIENT, lease(), 7, message)

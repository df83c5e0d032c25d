"""Headers around messages."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.dhcp import packets
from podwire.protocols.dhcp.options import Malformed
from podwire.protocols.dhcp.packets import Arp, Datagram

MAC, OTHER = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
ADDRESS = IPv4Address("10.0.0.5")
FRAME = bytes.fromhex(
    "ffffffffffff 020000000001 0800"
    "45 00 0021 0000 0000 40 11 7acd 00000000 ffffffff"
    "0044 0043 000d bb7b 68656c6c6f".replace(" ", "")
)
HELLO = Datagram(IPv4Address(0), 68, IPv4Address("255.255.255.255"), 67, b"hello", MAC)


def test_a_checksum_is_that_of_the_internet():
    header = bytes.fromhex("45000073000040004011" + "0000" + "c0a80001c0a800c7")
    assert packets.checksum(header) == 0xB861
    assert packets.checksum(header[:10] + b"\xb8\x61" + header[12:]) == 0


def test_a_datagram_is_these_bytes():
    assert packets.encode(HELLO) == FRAME
    assert packets.decode(FRAME) == HELLO


def addresses():
    return st.integers(0, 2**32 - 1).map(IPv4Address)


@given(
    st.builds(
        Datagram,
        addresses(),
        st.integers(0, 65535),
        addresses(),
        st.integers(0, 65535),
        st.binary(max_size=400),
        st.binary(min_size=6, max_size=6),
        st.binary(min_size=6, max_size=6),
    )
)
def test_packets_survive_a_round_trip(datagram):
    assert packets.decode(packets.encode(datagram)) == datagram
    assert packets.decode(packets.encode(datagram) + bytes(9)) == datagram, "what Ethernet adds to short frames"


@given(st.binary(max_size=120), st.integers(0, len(FRAME)))
def test_nothing_that_comes_makes_a_client_fall(data, at):
    for item in (data, FRAME[:at] + data, FRAME[:at] + data + FRAME[at + len(data) :]):
        for read in (packets.decode, packets.decode_arp):
            try:
                read(item)
            except Malformed:
                continue


def changed(at, value):
    return FRAME[:at] + bytes.fromhex(value) + FRAME[at + len(value) // 2 :]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(FRAME[:20], id="cut off in a header"),
        pytest.param(FRAME[:-1], id="cut off"),
        pytest.param(changed(12, "86dd"), id="no IPv4"),
        pytest.param(changed(14, "65"), id="another version"),
        pytest.param(changed(14, "41"), id="a header too short"),
        pytest.param(changed(20, "2000"), id="the first piece of more"),
        pytest.param(changed(20, "0001"), id="a later piece"),
        pytest.param(changed(23, "06"), id="no UDP"),
        pytest.param(changed(24, "0000"), id="wrong sum of the header"),
        pytest.param(changed(38, "0007"), id="a length too short"),
        pytest.param(changed(38, "00ff"), id="a length too long"),
        pytest.param(changed(42, "00"), id="wrong sum of the data"),
    ],
)
def test_a_truncated_datagram_is_rejected(frame):
    with pytest.raises(Malformed):
        packets.decode(frame)


def test_a_missing_or_offloaded_checksum_is_ignored():
    assert packets.decode(changed(40, "1234"), checksummed=False) == HELLO
    assert packets.decode(changed(40, "0000")) == HELLO


PROBE = bytes.fromhex("ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 00000000 000000000000 0a000005")


def test_a_probe_asks_without_claiming():
    assert packets.probe(MAC, ADDRESS) == PROBE
    assert packets.decode_arp(PROBE) == Arp(True, MAC, IPv4Address(0), ADDRESS)


@pytest.mark.parametrize(
    ("heard", "taken"),
    [
        pytest.param(Arp(False, OTHER, ADDRESS, IPv4Address(0)), True, id="somebody answers"),
        pytest.param(Arp(True, OTHER, ADDRESS, IPv4Address("10.0.0.9")), True, id="somebody asks as the address"),
        pytest.param(Arp(True, OTHER, IPv4Address(0), ADDRESS), True, id="somebody probes, too"),
        pytest.param(Arp(True, OTHER, IPv4Address("10.0.0.9"), ADDRESS), False, id="somebody looks for it"),
        pytest.param(Arp(True, MAC, IPv4Address(0), ADDRESS), False, id="our own probe"),
        pytest.param(Arp(False, OTHER, IPv4Address("10.0.0.9"), ADDRESS), False, id="about another address"),
    ],
)
def test_arp_detects_an_address_in_use_or_being_probed(heard, taken):
    assert packets.is_taken(packets.decode_arp(packets.encode_arp(heard)), MAC, ADDRESS) is taken


def test_arp_for_something_else_is_refused():
    for at, value in ((12, b"\x08\x00"), (14, b"\x00\x06"), (18, b"\x08"), (20, b"\x00\x09")):
        with pytest.raises(Malformed):
            packets.decode_arp(PROBE[:at] + value + PROBE[at + len(value) :])

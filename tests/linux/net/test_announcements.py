"""Frames that announce an address."""

from ipaddress import ip_address

import pytest

from podwire.linux.net.announcements import frame

MAC = bytes.fromhex("02000000000a")


def test_an_ipv4_address_is_announced_by_a_gratuitous_arp_request():
    own = ip_address("10.0.0.9").packed
    expected = b"\xff" * 6 + MAC + bytes.fromhex("0806000108000604 0001") + MAC + own + bytes(6) + own
    assert frame(MAC, ip_address("10.0.0.9")) == expected


def test_an_ipv6_address_is_announced_by_an_unsolicited_advertisement():
    sent = frame(MAC, ip_address("2001:db8::9"))
    own, everybody = ip_address("2001:db8::9").packed, ip_address("ff02::1").packed
    assert sent[:14] == bytes.fromhex("333300000001") + MAC + bytes.fromhex("86dd")
    assert sent[14:54] == bytes.fromhex("60000000 0020 3a ff") + own + everybody
    body = sent[54:]
    assert body[:2] == bytes([136, 0])
    assert body[4:] == bytes([0x20, 0, 0, 0]) + own + bytes([2, 1]) + MAC
    pseudo = own + everybody + (32).to_bytes(4, "big") + (58).to_bytes(4, "big") + body
    total = sum(int.from_bytes(pseudo[at : at + 2], "big") for at in range(0, len(pseudo), 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


@pytest.mark.parametrize("text", ["10.0.0.9", "2001:db8::9"])
def test_an_announcement_is_long_enough_for_its_protocol(text):
    assert len(frame(MAC, ip_address(text))) >= 42

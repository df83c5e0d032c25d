"""Frames and datagrams on one link."""

import socket
import time
from ipaddress import ip_interface

import pytest

from podwire.linux import errors
from podwire.linux.net.packets import ARP, IPV4, DatagramSocket, FrameSocket, index_of
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Veth
from tests.eventually import eventually


@pytest.fixture
def pair(kernel, tmp_path):
    """Makes a link with an end in each of two namespaces; gives the paths of these."""
    made = kernel.namespaces(tmp_path / "ns")

    def make():
        near, far = made.create("near").path, made.create("far").path
        with kernel.network(near) as network:
            network.links.add(Veth("a0", "b0", far, mac="02:00:00:00:00:0a", peer_mac="02:00:00:00:00:0b", up=True))
            network.addresses.add(network.links.get("a0").ifindex, ip_interface("10.0.0.1/24"))
        with kernel.network(far) as network:
            network.links.change("b0", up=True)
            network.addresses.add(network.links.get("b0").ifindex, ip_interface("10.0.0.2/24"))
        return near, far

    yield make
    for item in made.list():
        made.remove(item.name)


def read(sock):
    found = []
    eventually(lambda: found.extend(sock.read()) or found)
    return found


def udp(netns, source, target, data):
    with visit(netns):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender:
        sender.bind((source, 0))
        sender.sendto(data, target)


def test_only_datagrams_to_the_port_are_received(kernel, pair):
    near, far = pair()
    heard = FrameSocket(index_of("b0", far), IPV4, udp_port=68, netns=far)
    udp(near, "10.0.0.1", ("10.0.0.2", 67), b"to another port")
    udp(near, "10.0.0.1", ("10.0.0.2", 68), b"to this one")
    [frame] = read(heard)
    assert frame.data.endswith(b"to this one")
    assert frame.data[:6] == heard.mac == bytes.fromhex("02000000000b")
    assert not frame.checksummed, "the kernel leaves it to a card, and there is none"
    heard.close()


def test_frames_are_sent_as_they_are(kernel, pair):
    near, far = pair()
    sender = FrameSocket(index_of("a0", near), ARP, netns=near)
    heard = FrameSocket(index_of("b0", far), ARP, netns=far)
    frame = b"\xff" * 6 + bytes.fromhex("020000000099") + b"\x08\x06" + b"x" * 46

    def arrived():
        sender.send(frame)  # a link that just came up may drop the first
        return frame in [item.data for item in heard.read()]

    eventually(arrived)
    sender.close()
    heard.close()


def test_promiscuous_mode_ends_with_the_socket(kernel, pair, reported):
    _, far = pair()
    heard = FrameSocket(index_of("b0", far), ARP, netns=far)

    def promiscuity():
        [link] = reported("ip", "-d", "-j", "link", "show", "b0", netns=far)
        return link["promiscuity"]

    assert promiscuity() == 0
    heard.set_promiscuous()
    assert promiscuity() == 1
    heard.close()
    assert promiscuity() == 0


def test_datagrams_go_from_one_address_over_one_link(kernel, pair):
    near, far = pair()
    one, other = DatagramSocket("a0", "10.0.0.1", 68, netns=near), DatagramSocket("b0", "10.0.0.2", 67, netns=far)
    one.send(b"hello", ("10.0.0.2", 67))
    assert read(other) == [(b"hello", ("10.0.0.1", 68))]
    other.close()
    one.send(b"nobody there", ("10.0.0.2", 67))
    time.sleep(0.05)
    assert one.read() == []
    one.close()


def test_missing_path_is_a_named_error(kernel, pair):
    near, _ = pair()
    for use in (
        lambda: index_of("nope", near),
        lambda: FrameSocket(99, IPV4, netns=near),
        lambda: DatagramSocket("nope", "10.0.0.1", 68, netns=near),
    ):
        with pytest.raises(errors.NoSuchLink):
            use()
    with pytest.raises(errors.NoSuchNamespace):
        index_of("a0", f"{near}-gone")
    with pytest.raises(errors.LinuxError):
        DatagramSocket("a0", "10.0.0.77", 68, netns=near)


def test_send_on_a_down_link_is_an_error(kernel, pair):
    near, _ = pair()
    with kernel.network(near) as network:
        network.links.change("a0", up=False)
    sender = FrameSocket(index_of("a0", near), ARP, netns=near)
    with pytest.raises(errors.Unreachable):
        sender.send(b"\xff" * 60)
    sender.close()

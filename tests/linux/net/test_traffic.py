"""How fast packets pass links, by what the kernel tells and by the packets themselves."""

import errno
from ipaddress import ip_network

import pytest

from podwire.linux import errors
from podwire.linux.net.traffic import KernelTraffic
from podwire.linux.values import Bucket, Ifb, Subnets, Veth

SLOW = Bucket(rate=500_000, burst=50_000, limit=62_500)


@pytest.fixture
def pair(host):
    def made():
        network, path = host("a")
        network.links.add(Veth("a0", "a1", up=True))
        network.links.add(Ifb("ifb-a", mtu=1400, alias="podwire:a", up=True))
        return network, path, network.links.get("a0").ifindex, network.links.get("ifb-a").ifindex

    return made


def test_ifb_has_its_requested_attributes(kernel, pair):
    network, _, _, _ = pair()
    link = network.links.get("ifb-a")
    assert (link.kind, link.mtu, link.alias, link.up, link.queue) == ("ifb", 1400, "podwire:a", True, 32)


def test_bucket_exists_until_it_is_removed(kernel, pair, reported):
    network, path, index, _ = pair()
    assert network.traffic.shaped(index) is None
    network.traffic.shape(index, SLOW)
    found = network.traffic.shaped(index)
    assert (found.rate, found.limit) == (SLOW.rate, SLOW.limit)
    assert found.burst == pytest.approx(SLOW.burst, abs=64)
    (seen,) = reported("tc", "-j", "qdisc", "show", "dev", "a0", netns=path)
    assert (seen["kind"], seen["handle"], seen["options"]["rate"]) == ("tbf", "7077:", SLOW.rate)
    network.traffic.unshape(index)
    assert network.traffic.shaped(index) is None
    with pytest.raises(errors.NoSuchQdisc):
        network.traffic.unshape(index)


def test_a_rate_of_more_than_32_bits_is_kept(kernel, pair):
    network, _, index, _ = pair()
    network.traffic.shape(index, Bucket(rate=5 << 32, burst=1 << 30, limit=1 << 31))
    assert network.traffic.shaped(index).rate == 5 << 32


def test_a_second_bucket_is_refused(kernel, pair):
    network, _, index, _ = pair()
    network.traffic.shape(index, SLOW)
    with pytest.raises(errors.QdiscExists):
        network.traffic.shape(index, SLOW)


def test_foreign_qdisc_is_not_touched(kernel, tmp_path, reported):
    spaces = kernel.namespaces(tmp_path / "ns")
    path = spaces.create("a").path
    network = kernel.network(path)
    network.links.add(Veth("a0", "a1", up=True))
    index = network.links.get("a0").ifindex
    reported("tc", "qdisc", "add", "dev", "a0", "root", "handle", "9:", "htb", netns=path)
    with pytest.raises(errors.QdiscExists):
        network.traffic.shape(index, SLOW)
    with pytest.raises(errors.NoSuchQdisc):
        network.traffic.unshape(index)
    assert network.traffic.shaped(index) is None
    assert reported("tc", "-j", "qdisc", "show", "dev", "a0", netns=path)[0]["kind"] == "htb"
    network.close()
    spaces.remove("a")


def test_redirect_exists_until_it_is_removed(kernel, pair):
    network, _, index, ifb = pair()
    assert (network.traffic.redirected(index), network.traffic.hooked(index)) == (0, False)
    network.traffic.redirect(index, ifb)
    assert (network.traffic.redirected(index), network.traffic.hooked(index)) == (ifb, True)
    with pytest.raises(errors.QdiscExists):
        network.traffic.redirect(index, ifb)
    network.traffic.unredirect(index)
    assert network.traffic.redirected(index) == 0
    with pytest.raises(errors.NoSuchQdisc):
        network.traffic.unredirect(index)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda traffic: traffic.shape(99, SLOW), id="shape"),
        pytest.param(lambda traffic: traffic.unshape(99), id="unshape"),
        pytest.param(lambda traffic: traffic.redirect(99, 1), id="redirect"),
        pytest.param(lambda traffic: traffic.unredirect(99), id="unredirect"),
    ],
)
def test_a_link_that_is_not_there_has_no_traffic(kernel, pair, work):
    network, *_ = pair()
    with pytest.raises(errors.NoSuchLink):
        work(network.traffic)
    assert network.traffic.shaped(99) is None


def test_allmulticast_and_queue_length_can_be_set(kernel, pair):
    network, _, index, _ = pair()
    before = network.links.get(index)
    assert (before.all_multicast, before.queue) == (False, 1000)
    network.links.change(index, all_multicast=True, queue=77)
    after = network.links.get(index)
    assert (after.all_multicast, after.queue, after.up, after.promiscuous) == (True, 77, True, False)


def test_kernel_without_classes_is_named_by_its_option():
    """The kernel answers ENOENT for a kind of qdisc that it does not know."""

    class Sender:
        def do(self, *requests):
            raise errors.NoSuchQdisc(errno.ENOENT, requests[0].operation, "Specified qdisc kind is unknown")

    subnets = Subnets((ip_network("10.0.0.0/8"),), limited=True, by_source=True)
    with pytest.raises(errors.Unsupported, match="built without CONFIG_NET_SCH_HTB"):
        KernelTraffic(Sender()).shape_subnets(2, SLOW, subnets)

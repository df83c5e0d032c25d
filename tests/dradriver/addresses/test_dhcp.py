"""The DHCP client against a server, over a link."""

import asyncio
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, ip_interface
from random import Random

import pytest

from podwire.ipam.dhcp.client import DhcpClient, Endpoint, NoLease, Timing, Withdrawn, _Exchange
from podwire.linux.net.network import KernelNetwork
from podwire.protocols.dhcp import options
from podwire.protocols.dhcp.messages import Type

QUICK = Timing(acquire=30, answer=20, probe=0.05, after_conflict=0.05)
ID = b"\xff\x00\x00\x00\x01\x00\x04" + bytes(16)
FIRST = IPv4Address("10.77.0.100")


@pytest.fixture
def client():
    return DhcpClient(QUICK)


def asked(lan, **more):
    return {"ifindex": lan.ifindex, "mac": lan.mac, "client_id": ID, "netns": lan.host, **more}


def spot(lan, ifindex=None, netns=None):
    return Endpoint(ifindex=ifindex or lan.ifindex, mac=lan.mac, client_id=ID, netns=netns or lan.host)


async def test_client_gets_the_lease_of_the_server(lan, server, client):
    server.t1, server.t2 = 600, 1800
    server.more = {
        options.CLASSLESS_ROUTES: bytes((16, 10, 5, 10, 77, 0, 254, 0, 10, 77, 0, 1)),
        options.ROUTER: bytes((10, 77, 0, 9)),
        options.MTU: (1400).to_bytes(2),
        options.DNS: bytes((10, 77, 0, 2, 10, 77, 0, 3)),
        options.DOMAIN: b"lab.example",
    }
    lease = await client.acquire(**asked(lan, hostname="web"))
    assert (lease.address, lease.server) == (ip_interface("10.77.0.100/24"), server.ip)
    assert (lease.seconds, lease.renew_after, lease.rebind_after) == (3600, 600, 1800)
    assert lease.routes == (
        (IPv4Network("10.5.0.0/16"), IPv4Address("10.77.0.254")),
        (IPv4Network("0.0.0.0/0"), IPv4Address("10.77.0.1")),
    )
    assert (lease.mtu, lease.domain) == (1400, "lab.example")
    assert [str(item) for item in lease.dns] == ["10.77.0.2", "10.77.0.3"]
    assert server.story == [Type.DISCOVER, Type.REQUEST]
    discover, datagram = server.heard[0]
    assert discover.options[options.CLIENT_ID] == ID
    assert discover.options[options.HOSTNAME] == b"web"
    assert (datagram.source, datagram.source_mac.hex(":")) == (IPv4Address(0), lan.mac)


async def test_a_client_speaks_for_a_child_that_is_not_made_yet(lan, server, client):
    child = "02:00:00:00:00:99"
    lease = await client.acquire(**asked(lan, mac=child))
    assert lease.address.ip == FIRST
    message, datagram = server.heard[0]
    assert (message.mac.hex(":"), datagram.source_mac.hex(":"), message.broadcast) == (child, child, True)


async def test_client_without_an_answer_retransmits(lan, server, client):
    server.silent_to = {Type.DISCOVER}
    acquiring = asyncio.create_task(client.acquire(**asked(lan)))
    first, _ = await server.has_heard(Type.DISCOVER)
    server.silent_to = {Type.REQUEST}
    again, _ = await server.has_heard(Type.DISCOVER, 2)
    await server.has_heard(Type.REQUEST)
    server.silent_to = set()
    assert (await acquiring).address.ip == FIRST
    assert first.xid == again.xid


async def test_a_remembered_address_is_asked_for_at_once(lan, server, client):
    server.given[ID] = IPv4Address("10.77.0.150")
    lease = await client.acquire(**asked(lan, remembered=IPv4Address("10.77.0.150")))
    assert lease.address.ip == IPv4Address("10.77.0.150")
    assert server.story == [Type.REQUEST]
    assert options.SERVER not in server.heard[0][0].options


async def test_a_remembered_address_that_is_refused_is_forgotten(lan, server, client):
    lease = await client.acquire(**asked(lan, remembered=IPv4Address("10.77.0.150")))
    assert lease.address.ip == FIRST
    assert server.story == [Type.REQUEST, Type.DISCOVER, Type.REQUEST]
    assert server.heard[0][0].xid != server.heard[-1][0].xid


async def test_address_in_use_is_declined_and_another_one_requested(lan, server, squatter):
    squatter(FIRST)
    acquiring = asyncio.create_task(DhcpClient(replace(QUICK, probe=2)).acquire(**asked(lan)))
    declined, _ = await server.has_heard(Type.DECLINE)
    server.refuses = {FIRST}
    assert declined.options[options.REQUESTED] == FIRST.packed
    assert (await acquiring).address.ip == FIRST + 1


async def test_conflict_is_reported_at_once_when_the_deadline_is_near(lan, server, squatter):
    squatter(FIRST)
    client = DhcpClient(replace(QUICK, probe=20, after_conflict=60))
    with pytest.raises(NoLease) as reported:
        await client.acquire(**asked(lan, timeout=40))
    assert str(reported.value) == "DHCP: 10.77.0.100 was leased, but 02:de:ad:be:ef:01 has it"


async def test_timeout_names_the_last_step_of_the_exchange(lan, server):
    server.silent_to = {Type.REQUEST}
    talk = _Exchange(spot(lan), QUICK, Random(1), None)
    assert talk.progress == "no server answered"
    talking = asyncio.create_task(talk.run())
    await server.has_heard(Type.REQUEST)
    assert talk.progress == "10.77.0.1 offered 10.77.0.100 and did not confirm it"
    talking.cancel()
    await asyncio.wait([talking])


async def test_missing_server_is_reported(lan, client):
    with pytest.raises(NoLease) as reported:
        await client.acquire(**asked(lan, timeout=0.1))
    assert str(reported.value) == "DHCP: no server answered, after 0.1 s"


async def test_link_that_is_down_or_missing_is_reported(lan, client):
    with KernelNetwork(lan.host) as host:
        host.links.change("nic", up=False)
    with pytest.raises(NoLease, match="DHCP: the link is down"):
        await client.acquire(**asked(lan))
    with pytest.raises(NoLease, match="No such device"):
        await client.acquire(**asked(lan, ifindex=999))


async def test_conversations_do_not_wait_for_each_other(lan, server, client):
    """Several at once on one link, each with an address of its own."""
    ids = [bytes((0, number)) for number in range(5)]
    macs = [f"02:00:00:00:00:{number:02x}" for number in range(5)]
    asking = [client.acquire(**asked(lan, client_id=id_, mac=mac)) for id_, mac in zip(ids, macs, strict=True)]
    leases = await asyncio.gather(*asking)
    assert len({lease.address for lease in leases}) == 5


async def test_a_pods_lease_is_renewed_with_its_server_from_where_the_link_is(lan, server, client, moved):
    lease = await client.acquire(**asked(lan))
    ifindex = moved(lease)
    server.seconds = 7200
    renewed = await client.renew(lease, spot(lan, ifindex, lan.pod), "net1")
    assert (renewed.address, renewed.seconds) == (lease.address, 7200)
    message, datagram = server.heard[-1]
    assert (datagram.source, datagram.target) == (FIRST, server.ip)
    assert message.ciaddr == FIRST
    assert not {options.REQUESTED, options.SERVER} & set(message.options)


async def test_a_lease_is_rebound_with_everybody(lan, server, client, moved):
    lease = await client.acquire(**asked(lan))
    ifindex = moved(lease)
    rebound = await client.rebind(lease, spot(lan, ifindex, lan.pod))
    assert rebound.address == lease.address
    _, datagram = server.heard[-1]
    assert (str(datagram.target), datagram.target_mac) == ("255.255.255.255", b"\xff" * 6)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda client, lease, where: client.renew(lease, where, "net1"), id="while renewing"),
        pytest.param(lambda client, lease, where: client.rebind(lease, where), id="while rebinding"),
        pytest.param(lambda client, lease, where: client.confirm(where, FIRST), id="when it is asked for again"),
    ],
)
async def test_a_server_may_withdraw_an_address(lan, server, client, moved, how):
    lease = await client.acquire(**asked(lan))
    where = spot(lan, moved(lease), lan.pod)
    server.refuses = {FIRST}
    with pytest.raises(Withdrawn, match="not yours"):
        await how(client, lease, where)


async def test_renewal_without_an_answer_ends(lan, server, moved):
    client = DhcpClient(replace(QUICK, answer=0.1))
    lease = await client.acquire(**asked(lan))
    server.silent_to = set(Type)
    with pytest.raises(NoLease, match=r"no server answered within 0\.1 s"):
        await client.renew(lease, spot(lan, moved(lease), lan.pod), "net1")


async def test_a_lease_is_given_back_to_its_server(lan, server, client):
    lease = await client.acquire(**asked(lan))
    client.release(lease, spot(lan))
    message, datagram = await server.has_heard(Type.RELEASE)
    assert (message.ciaddr, message.options[options.SERVER]) == (FIRST, server.ip.packed)
    assert (datagram.source, datagram.target) == (FIRST, server.ip)
    assert message.options[options.CLIENT_ID] == ID


async def test_answers_that_are_not_for_the_client_change_nothing(lan, server, client):
    server.silent_to = {Type.DISCOVER}
    acquiring = asyncio.create_task(client.acquire(**asked(lan)))
    message, datagram = await server.has_heard(Type.DISCOVER)
    other = replace(message, xid=message.xid ^ 1)
    server._say(other, datagram, Type.OFFER, FIRST + 50)
    server._say(replace(message, mac=bytes(6)), datagram, Type.OFFER, FIRST + 51)
    server._socket.send(datagram.source_mac + bytes(100))
    server._say(message, datagram, Type.OFFER, FIRST)
    server.silent_to = set()
    assert (await acquiring).address.ip == FIRST

"""The DHCP client against a server that is not ours: udhcpd of busybox."""

import shutil
import subprocess
from ipaddress import ip_interface

import pytest

from podwire.ipam.dhcp.client import DhcpClient, Endpoint, NoLease, Timing, Withdrawn
from podwire.linux.net.network import KernelNetwork

BUSYBOX = shutil.which("busybox")
PATIENT = Timing(acquire=60, answer=30, probe=0)
CONFIG = """\
start 10.77.0.50
end 10.77.0.50
interface srv
lease_file {directory}/leases
pidfile {directory}/pid
max_leases 1
min_lease 60
option subnet 255.255.255.0
option router 10.77.0.1
option dns 10.77.0.2
option domain lab.example
option mtu 1400
option staticroutes 10.5.0.0/16 10.77.0.254, 0.0.0.0/0 10.77.0.1
option lease 600
"""


@pytest.fixture
def udhcpd(lan, tmp_path):
    """One address to give."""
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout if BUSYBOX else ""
    if "udhcpd" not in applets.split():
        pytest.skip("busybox has no udhcpd here")
    directory = tmp_path / "udhcpd"
    directory.mkdir()
    (directory / "leases").touch()
    (directory / "conf").write_text(CONFIG.format(directory=directory))
    words = ["nsenter", f"--net={lan.server}", "--", BUSYBOX, "udhcpd", "-f", str(directory / "conf")]
    with (directory / "log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        yield directory
        process.terminate()


def spot(lan, mac, client_id, **more):
    return Endpoint(**{"ifindex": lan.ifindex, "mac": mac, "client_id": client_id, "netns": lan.host, **more})


async def test_a_server_of_others_leases_confirms_renews_and_takes_back(lan, udhcpd, moved):
    client, asked = DhcpClient(PATIENT), {"netns": lan.host, "client_id": b"\0one"}
    lease = await client.acquire(lan.ifindex, lan.mac, **asked)
    assert (lease.address, lease.seconds, lease.mtu) == (ip_interface("10.77.0.50/24"), 600, 1400)
    assert [(str(route.destination), str(route.gateway)) for route in lease.routes] == [
        ("10.5.0.0/16", "10.77.0.254"),
        ("0.0.0.0/0", "10.77.0.1"),
    ]
    assert (str(lease.dns[0]), lease.domain, lease.unreadable) == ("10.77.0.2", "lab.example", ())

    again = await client.acquire(lan.ifindex, lan.mac, remembered=lease.address.ip, **asked)
    assert again.address == lease.address

    with pytest.raises(NoLease):
        await client.acquire(lan.ifindex, "02:00:00:00:00:02", netns=lan.host, client_id=b"\0two", timeout=0.5)

    inside = spot(lan, lan.mac, b"\0one", ifindex=moved(lease), netns=lan.pod)
    assert (await client.renew(lease, inside, "net1")).address == lease.address
    assert (await client.rebind(lease, inside)).address == lease.address
    with pytest.raises(Withdrawn):
        await client.confirm(inside, lease.address.ip + 1)

    client.release(lease, inside)
    with KernelNetwork(lan.pod) as pod:  # the server asks by ARP before it gives the address to another
        pod.addresses.delete(inside.ifindex, lease.address)
    two = {"netns": lan.pod, "client_id": b"\0two"}
    assert (await client.acquire(inside.ifindex, "02:00:00:00:00:02", **two)).address == lease.address

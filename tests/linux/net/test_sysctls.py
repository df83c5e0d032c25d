"""Kernel parameters."""

import pytest

from podwire.linux import errors
from podwire.linux.net.sysctls import NAMESPACED, KernelSysctls, parts


def test_a_parameter_of_a_network_is_its_own(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path)
    one, two = (kernel.sysctls(pinned.create(name).path) for name in ("one", "two"))
    one.write("net.ipv4.ip_unprivileged_port_start", "80")
    assert one.read("net.ipv4.ip_unprivileged_port_start") == "80"
    assert two.read("net.ipv4.ip_unprivileged_port_start") == "1024"
    assert one.read("net/ipv4/ip_unprivileged_port_start") == "80"


def test_a_parameter_of_a_link_goes_by_its_name(kernel, tmp_path):
    sysctls = kernel.sysctls(kernel.namespaces(tmp_path).create("one").path)
    sysctls.write("net.ipv4.conf.lo.forwarding", "1")
    assert sysctls.read("net.ipv4.conf.lo.forwarding") == "1"
    with pytest.raises(errors.NoSuchSysctl, match=r"read the sysctl net.ipv4.conf.eth7.forwarding"):
        sysctls.read("net.ipv4.conf.eth7.forwarding")


def test_present_sysctls_are_written_together(kernel, tmp_path):
    sysctls = kernel.sysctls(kernel.namespaces(tmp_path).create("one").path)
    sysctls.write_present(
        {"net/ipv4/conf/lo/arp_notify": "1", "net/ipv4/conf/eth7/arp_notify": "1", "net/ipv6/conf/lo/accept_ra": "0"}
    )
    assert sysctls.read("net/ipv4/conf/lo/arp_notify") == "1"
    assert sysctls.read("net/ipv6/conf/lo/accept_ra") == "0"
    with pytest.raises(errors.Refused, match=r"kernel.core_pattern"):
        sysctls.write_present({"kernel.core_pattern": "x"})


def test_a_parameter_of_an_ipc_namespace_is_its_own(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path, "ipc")
    one, two = (kernel.sysctls(ipc=pinned.create(name).path) for name in ("one", "two"))
    one.write("kernel.msgmax", "4096")
    assert (one.read("kernel.msgmax"), two.read("kernel.msgmax")) == ("4096", "8192")


@pytest.mark.parametrize(
    "name",
    [
        "kernel.core_pattern",
        "kernel.hostname",
        "vm.swappiness",
        "kernel.sem2",
        "net",
        "net.ipv4.ip_forward+kernel.core_pattern",
        "net/../kernel/core_pattern",
        "net...kernel.core_pattern",
        "net.ipv4.ip forward",
        "net.ipv4.",
        "",
        "net.ipv4.\nip_forward",
    ],
)
def test_sysctl_of_the_whole_machine_is_refused(kernel, name):
    sysctls = kernel.sysctls()
    with pytest.raises(errors.Refused):
        sysctls.write(name, "1")
    with pytest.raises(errors.Refused):
        sysctls.read(name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("net.ipv4.ip_forward", ["net", "ipv4", "ip_forward"], id="dots"),
        pytest.param("net/ipv4/ip_forward", ["net", "ipv4", "ip_forward"], id="slashes"),
        pytest.param("net/ipv4/conf/eth0.1/forwarding", ["net", "ipv4", "conf", "eth0.1", "forwarding"], id="a dot"),
        pytest.param("net.ipv4.conf.eth0/1.forwarding", ["net", "ipv4", "conf", "eth0.1", "forwarding"], id="swapped"),
    ],
)
def test_a_name_is_a_path(name, found):
    assert parts(name) == found


def test_invalid_value_is_refused(kernel):
    with pytest.raises(errors.Refused, match=r"write the sysctl net.ipv4.ip_forward: Invalid"):
        kernel.sysctls().write("net.ipv4.ip_forward", "perhaps")


def test_more_can_be_allowed():
    with pytest.raises(errors.NoSuchSysctl):
        KernelSysctls(allowed=(*NAMESPACED, "vm.nothing*")).read("vm.nothing_like_this")

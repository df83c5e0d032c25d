"""Listeners of a network namespace are listed by the kernel, by protocol and address."""

import socket
from ipaddress import ip_address

from podwire.linux.net.listeners import Listener, listeners


def test_listeners_are_listed_and_connections_are_not():
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(("::", 0), family=socket.AF_INET6) as tcp6,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket() as unbound,
    ):
        udp.bind(("0.0.0.0", 0))
        unbound.connect(tcp.getsockname())
        listed = listeners()
        assert Listener("TCP", tcp.getsockname()[1], ip_address("127.0.0.1")) in listed
        assert Listener("TCP", tcp6.getsockname()[1], ip_address("::")) in listed
        assert Listener("UDP", udp.getsockname()[1], ip_address("0.0.0.0")) in listed
        assert unbound.getsockname()[1] not in {listener.port for listener in listed if listener.protocol == "TCP"}
    assert Listener("TCP", tcp.fileno(), ip_address("127.0.0.1")) not in listeners()

"""DHCP for IPv4 (RFC 2131 and 2132), the client side: messages, their headers, and the client's state machine.

No sockets and no clock: bytes and times come in, messages and decisions go out.
"""

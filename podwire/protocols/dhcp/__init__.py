"""DHCP for IPv4 (RFC 2131 and 2132), the client's chair: messages, the headers around them, and what a client decides.

No sockets and no clock: bytes and times come in, messages and decisions go out.
"""

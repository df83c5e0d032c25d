"""Addresses between text and bytes, a hundred times as fast as by `ipaddress`. No I/O."""

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

_FAMILY = {4: AF_INET, 16: AF_INET6}


def packed(text: str) -> bytes:
    """Returns the 4 or 16 bytes of an address. Raises ValueError."""
    try:
        return inet_pton(AF_INET6 if ":" in text else AF_INET, text)
    except OSError as error:
        raise ValueError(f"{text!r} is not an IP address") from error


def text(address: bytes) -> str:
    """Returns the usual form of an address."""
    return inet_ntop(_FAMILY[len(address)], address)

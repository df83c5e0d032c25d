"""Owner tags: how everything that a plugin makes names the attachment that it belongs to. Pure.

    alias of a link           podwire:TOKEN NETWORK/CONTAINER/IFNAME
    alias of a borrowed one   podwire:TOKEN NETWORK/CONTAINER/IFNAME DEVICE up|down
    comment of an nft element TOKEN CONTAINER IFNAME

TOKEN is 16 random digits and 8 that all tokens of a network with records in one directory share: two podwires in one
namespace with networks of the same name do not take each other's resources for theirs. DEVICE is the device's own name
on the host. Records are for speed and for the state to restore; the tags alone are enough for DEL and GC.
"""

from typing import NamedTuple
from zlib import adler32, crc32

PREFIX = "podwire:"
"""Of the aliases of our links."""
LONGEST_ALIAS = 255
_LONGEST_ID = 64
"""Characters of a container id in a tag: an nft comment has at most 127 bytes."""
_RANDOM = 16
_LONGEST_LINK = 15


Owner = tuple[str, str, str]
"""The digits of a network, a container id as `shown_id` returns it, an interface."""


class Tag(NamedTuple):
    token: str
    container: str
    """The container id as a tag has it; see `shown_id`."""
    ifname: str
    device: str = ""
    """The own name of a borrowed device."""
    up: bool = False
    """Whether the device was up."""

    @property
    def network(self) -> str:
        """The digits that all tokens of a network share."""
        return self.token[_RANDOM:]

    @property
    def owner(self) -> Owner:
        return self.network, self.container, self.ifname


def parse(text: str) -> Tag | None:
    """Parses an alias or a comment. Returns None for any other text, and for an alias that was cut off."""
    token, _, owner = text.removeprefix(PREFIX).partition(" ")
    device = state = ""
    if text.startswith(PREFIX):
        owner, _, device = owner.partition(" ")
        device, _, state = device.partition(" ")
        parts = owner.split("/")[1:]
    else:
        parts = owner.split(" ")
    if len(parts) != 2 or not all(parts) or len(token) <= _RANDOM or len(text) >= LONGEST_ALIAS:
        return None
    return Tag(token, parts[0], parts[1], device, state == "up")


def shown_id(container_id: str) -> str:
    """Returns a container id as tags have it: a long one is shortened, with a checksum of the whole."""
    if len(container_id) <= _LONGEST_ID:
        return container_id
    checksum = _checksum(container_id)  # '~' is in no container id
    return f"{container_id[: _LONGEST_ID - len(checksum) - 1]}~{checksum}"


def network_digits(directory: str, network: str) -> str:
    """Returns the end of all tokens of a network with records in one directory."""
    return f"{crc32(f'{directory} {network}'.encode()):08x}"


def link_name(prefix: str, network: str, container_id: str, ifname: str) -> str:
    """Derives the name of a link from its owner, so that it is found by its name when the record is lost."""
    return (prefix + _checksum(f"{network} {container_id} {ifname}"))[:_LONGEST_LINK]


def _checksum(text: str) -> str:
    """Two checksums that are independent of each other, because cryptographic ones take milliseconds to import."""
    return f"{crc32(text.encode()):08x}{adler32(text.encode()):08x}"

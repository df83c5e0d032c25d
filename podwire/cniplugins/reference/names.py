"""Names that the reference plugins give to what they make for a pod. Pure.

iptables, nat      CNI-HASH       masquerading, HASH of network and container
                   CNI-DN-HASH    host ports, CNI-SN-HASH those of old versions
nft                a comment      masquerading: hashes of network and attachment; host ports: the container's id
ifb                bwpHASH        limits of bandwidth, the same hash
"""

import re
from collections.abc import Collection

from podwire.protocols.cni.config import Valid

_LONGEST_CHAIN = 28
_LONGEST_LINK = 15
_HASHED = 16
_LONGEST_COMMENT = 128
_COMMENT = re.compile(r'(?:dnat )?name: "((?:[^"\\]|\\.)*)" id: "((?:[^"\\]|\\.)*)')


def chain_names(network: str, container_id: str, kinds: Collection[str] = ("",)) -> list[str]:
    """Returns names of chains: of masquerading for the kind "", of host ports for DN- and SN-."""
    digits = _digest(network + container_id)
    return [f"CNI-{kind}{digits}"[:_LONGEST_CHAIN] for kind in kinds]


def ifb_name(network: str, container_id: str) -> str:
    return f"bwp{_digest(network + container_id)}"[:_LONGEST_LINK]


def masquerade_comment(network: str, container_id: str, ifname: str) -> str:
    """Returns the beginning of the comment of an attachment's nft rules."""
    return f"{network_comment(network)}{_digest(f'{ifname}:{container_id}')[:_HASHED]}"


def full_masquerade_comment(network: str, container_id: str, ifname: str) -> str:
    """Returns the whole comment, which GC of the reference plugins compares."""
    begin = masquerade_comment(network, container_id, ifname)
    return f"{begin}, net: {network}, if: {ifname}, id: {container_id}"[:_LONGEST_COMMENT]


def network_comment(network: str) -> str:
    return f"{_digest(network)[:_HASHED]}-"


def owner_of_comment(comment: str) -> tuple[str, str] | None:
    """Returns network and container id of an iptables rule's comment; the id may be cut off."""
    parsed = _COMMENT.match(comment)
    return None if parsed is None else (parsed[1], parsed[2])


def is_valid_id(container_id: str, valid: Valid) -> bool:
    """Whether an id of a comment, which may be cut off, is one of a valid attachment."""
    return any(id_.startswith(container_id) for id_, _ in valid) if container_id else True


def _digest(text: str) -> str:
    from hashlib import sha512  # noqa: PLC0415 - takes milliseconds to import, and few calls need it

    return sha512(text.encode()).hexdigest()

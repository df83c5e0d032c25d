"""How a client comes to a lease, as decisions: what to say next, how long to wait for an answer, what an answer means.

SELECTING --offer--> REQUESTING --ack--> lease
REBOOTING --ack--> lease            nak, or nobody answers: SELECTING
"""

from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import IPv4Address

from podwire.protocols.dhcp import leases, options
from podwire.protocols.dhcp.leases import Lease
from podwire.protocols.dhcp.messages import NOWHERE, REPLY, REQUEST, Message, Type
from podwire.protocols.dhcp.options import Malformed

FIRST_WAIT, LONGEST_WAIT = 1.0, 64.0
"""RFC 2131 has 4 s for the first, from the time of slow links; a pod waits for this."""
_JITTER = 0.25
_TRIES = {"rebooting": 2, "requesting": 3}
"""After as many without an answer everything begins anew."""
_LONGEST_MESSAGE = 1472


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOptions:
    """Options that a client sends, beyond those of the protocol itself."""

    wishes: bytes = options.DEFAULT_WISHES
    """Codes of the options that it asks for."""
    provided: tuple[tuple[int, bytes], ...] = ()


DEFAULT_OPTIONS = SentOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The identity of the client."""

    mac: bytes
    client_id: bytes
    hostname: str = ""
    broadcast: bool = False
    sent: SentOptions = DEFAULT_OPTIONS


class Stage(Enum):
    REBOOTING = "rebooting"
    SELECTING = "selecting"
    REQUESTING = "requesting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Where a client is on its way."""

    client: Client
    stage: Stage
    xid: int
    tries: int = 0
    """How often this was said already."""
    refusals: int = 0
    wanted: IPv4Address | None = None
    server: IPv4Address | None = None
    refusal: str = ""
    """The text with which a server refused."""


def begin(client: Client, xid: int, remembered: IPv4Address | None = None) -> Asking:
    """With an address that the client had before, it asks for that at once."""
    stage = Stage.REBOOTING if remembered else Stage.SELECTING
    return Asking(client=client, stage=stage, xid=xid, wanted=remembered)


def spoken(asking: Asking, elapsed: float) -> Message:
    """Returns the message to send now."""
    if asking.stage is Stage.SELECTING:
        named = {options.REQUESTED: asking.wanted.packed} if asking.wanted else {}
        return _message(asking.client, Type.DISCOVER, asking.xid, named, elapsed=elapsed)
    named = {options.REQUESTED: (asking.wanted or NOWHERE).packed}
    if asking.stage is Stage.REQUESTING and asking.server:
        named[options.SERVER] = asking.server.packed
    return _message(asking.client, Type.REQUEST, asking.xid, named, elapsed=elapsed)


def patience(tries: int, chance: float) -> float:
    """Seconds to wait for an answer: twice as long each time, and for no two clients the same (`chance` is 0 to 1)."""
    wait = min(FIRST_WAIT * 2.0 ** min(tries, 16), LONGEST_WAIT)
    return wait * (1 + _JITTER * (2 * chance - 1))


def pause(asking: Asking) -> float:
    """Seconds to wait before speaking again to servers that refuse what they offered: lest that goes in circles."""
    return min(2.0 ** min(asking.refusals - 1, 16), LONGEST_WAIT) if asking.refusals and not asking.tries else 0.0


def unanswered(asking: Asking, xid: int) -> Asking:
    """Handles a time-out: retransmits, or restarts with a new transaction id."""
    tries = asking.tries + 1
    if tries < _TRIES.get(asking.stage.value, tries + 1):
        return replace(asking, tries=tries)
    return replace(asking, stage=Stage.SELECTING, xid=xid, tries=0, server=None)


def heard(asking: Asking, message: Message, via: bytes, xid: int) -> Asking | Lease | None:
    """Returns the next state after an answer; None for an answer that is not for this client or is unusable."""
    if not is_answer(asking.client, asking.xid, message):
        return None
    try:
        return _heard(asking, message, via, xid)
    except Malformed:
        return None


def _heard(asking: Asking, message: Message, via: bytes, xid: int) -> Asking | Lease | None:
    if asking.stage is Stage.SELECTING:
        if message.type is not Type.OFFER:
            return None
        offered = leases.read(message)
        stage = Stage.REQUESTING
        return replace(asking, stage=stage, tries=0, wanted=offered.address.ip, server=offered.server)
    sender = message.options.get(options.SERVER)
    if asking.server is not None and sender != asking.server.packed:
        return None
    if message.type is Type.NAK:
        refusals = asking.refusals + (asking.stage is Stage.REQUESTING)
        return replace(
            asking,
            stage=Stage.SELECTING,
            xid=xid,
            tries=0,
            refusals=refusals,
            wanted=None,
            server=None,
            refusal=_said(message),
        )
    lease = leases.read(message, via) if message.type is Type.ACK else None
    return lease if lease is not None and lease.address.ip == asking.wanted else None


def _said(message: Message) -> str:
    text = message.options.get(options.TEXT, b"").decode("ascii", "replace")
    return "".join(character for character in text if character.isprintable())[:200] or "without a reason"


def is_answer(client: Client, xid: int, message: Message) -> bool:
    """Servers may repeat the client's id (RFC 6842): then it must be this client's."""
    named = message.options.get(options.CLIENT_ID, client.client_id)
    return (message.op, message.xid, message.mac, named) == (REPLY, xid, client.mac, client.client_id)


def prolonging(client: Client, lease: Lease, xid: int, elapsed: float = 0) -> Message:
    """To the lease's server while renewing, to everybody while rebinding; the message is the same."""
    return _message(replace(client, broadcast=False), Type.REQUEST, xid, {}, lease.address.ip, elapsed)


def prolonged(client: Client, lease: Lease, xid: int, message: Message) -> Lease | str | None:
    """A new lease of the same address; why it was refused; or None when the message is something else."""
    if not is_answer(client, xid, message):
        return None
    if message.type is Type.NAK:
        return _said(message)
    try:
        new = leases.read(message, lease.via) if message.type is Type.ACK else None
    except Malformed:
        return None
    return new if new is not None and new.address.ip == lease.address.ip else None


def releasing(client: Client, lease: Lease, xid: int) -> Message:
    return _short(client, Type.RELEASE, xid, {options.SERVER: lease.server.packed}, lease.address.ip)


def declining(client: Client, lease: Lease, xid: int) -> Message:
    named = {options.SERVER: lease.server.packed, options.REQUESTED: lease.address.ip.packed}
    return _short(client, Type.DECLINE, xid, named)


def _short(client: Client, kind: Type, xid: int, named: dict[int, bytes], ciaddr: IPv4Address = NOWHERE) -> Message:
    """Of which no answer comes."""
    fields = {options.TYPE: bytes((kind,)), options.CLIENT_ID: client.client_id, **named}
    return Message(op=REQUEST, xid=xid, mac=client.mac, ciaddr=ciaddr, options=fields)


def _message(
    client: Client,
    kind: Type,
    xid: int,
    named: dict[int, bytes],
    ciaddr: IPv4Address = NOWHERE,
    elapsed: float = 0,
) -> Message:
    fields = {
        options.TYPE: bytes((kind,)),
        options.CLIENT_ID: client.client_id,
        **({options.WISHES: client.sent.wishes} if client.sent.wishes else {}),
        options.LONGEST: _LONGEST_MESSAGE.to_bytes(2),
        **({options.HOSTNAME: client.hostname.encode("ascii", "replace")} if client.hostname else {}),
        **dict(client.sent.provided),
        **named,
    }
    return Message(
        op=REQUEST,
        xid=xid,
        mac=client.mac,
        secs=int(elapsed),
        broadcast=client.broadcast,
        ciaddr=ciaddr,
        options=fields,
    )

"""Elements of the kernel's sets, as the bytes that rules look up (`program.py`). Pure."""

from collections.abc import Iterable, Iterator
from struct import Struct

from podwire.linux.nft.values import Element
from podwire.nriplugins.network.policy.regions import Area
from podwire.nriplugins.network.policy.spans import Range, Span, Spans

NUMBER, TWO_NUMBERS = Struct("=I"), Struct("=II")
PARTY = Struct("=III")
"""Zero, class, identity."""
_PORTS = Struct(">B3xHxx")
_LENGTH = {4: 4, 6: 16}


def key_of(element: Element) -> bytes:
    """Its key within its set."""
    return element.key + element.end


def single_ports(class_: int, who: int, spans: Spans) -> Iterator[Element]:
    """Elements of single ports, and of everything."""
    head = PARTY.pack(0, class_, who)
    for protocol, first, last in spans:
        if first == last:
            yield Element(head + _PORTS.pack(protocol, first))


def segment(of: tuple[Span, int]) -> Element:
    (protocol, first, last), number = of
    return Element(_PORTS.pack(protocol, first), NUMBER.pack(number), end=_PORTS.pack(protocol, last))


def within(part: Span, spans: Iterable[Span]) -> bool:
    return any(span.protocol == part.protocol and span.first <= part.first and part.last <= span.last for span in spans)


def boxes(class_: int, version: int, range_: Range, areas: Iterable[Area]) -> Iterator[Element]:
    head = NUMBER.pack(0) + NUMBER.pack(class_)
    low, high = (bound.to_bytes(_LENGTH[version], "big") for bound in range_)
    for area in areas:
        ports = _PORTS.pack(area.protocol, area.first), _PORTS.pack(area.last_protocol, area.last)
        if version == 4:
            yield Element(head + low + ports[0], end=head + high + ports[1])
        else:
            yield Element(head + ports[0] + low, end=head + ports[1] + high)

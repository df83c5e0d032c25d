"""Variables of device selector expressions: one, `device`.

Attributes and capacities are found by domain and then by name: `device.attributes["net.example"].mtu`.
"""

from podwire.protocols.cel.types import BOOL, DYN, QUANTITY, STRING, map_of, struct

LONGEST = 10 * 1024
"""Bytes of an expression."""
COST_LIMIT = 1_000_000

DEVICE = struct(
    [
        ("driver", STRING),
        ("allowMultipleAllocations", BOOL),
        ("attributes", map_of(STRING, map_of(STRING, DYN))),
        ("capacity", map_of(STRING, map_of(STRING, QUANTITY))),
    ]
)
VARIABLES = {"device": DEVICE}

"""The driver's YAML file: what the node offers, and the pools of addresses."""

from dataclasses import dataclass, field
from pathlib import Path

from podwire.dradriver.addresses.pools import Pool, parse_pools
from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.inventory.config import KEYS, config
from podwire.dradriver.inventory.config import Config as Offering
from podwire.protocols.settings import BadConfig, parsed

POOLS = "pools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    offering: Offering = field(default_factory=Offering)
    pools: dict[str, Pool] = field(default_factory=dict)


def load(path: Path) -> Config:
    """Raises BadConfig, OSError."""
    found = parsed(path.read_bytes(), path) or {}
    if not isinstance(found, dict):
        raise BadConfig("", f"is not a mapping with {', '.join((*KEYS, POOLS))}")
    for each in found:
        if each not in (*KEYS, POOLS):
            raise BadConfig(str(each), f"is not a setting; known settings: {', '.join((*KEYS, POOLS))}")
    pools = found.get(POOLS) or {}
    if not isinstance(pools, dict):
        raise BadConfig(POOLS, "is not a mapping of names to pools")
    try:
        known = parse_pools(pools)
    except Refused as error:
        raise BadConfig(error.field, error.reason) from error
    return Config(offering=config({key: value for key, value in found.items() if key != POOLS}), pools=known)

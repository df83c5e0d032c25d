"""The driver's YAML file: what the node offers, and the pools of addresses."""

from dataclasses import dataclass, field
from pathlib import Path

from podwire.dradriver.addresses.pools import Pool, parse_pools
from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.inventory.config import KEYS, RENAMED
from podwire.dradriver.inventory.config import Config as Offering
from podwire.protocols.settings import BadConfig, mapped, parsed

POOLS = "pools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    offering: Offering = field(default_factory=Offering)
    pools: dict[str, Pool] = field(default_factory=dict)


def load(path: Path) -> Config:
    """Raises BadConfig, OSError."""
    document = parsed(path.read_bytes(), path)
    read = mapped("", {} if document is None else document, {**KEYS, POOLS: _pools}, renamed=RENAMED)
    pools = read.pop(POOLS, {})
    return Config(offering=Offering(**read), pools=pools)


def _pools(key: str, value: object) -> dict[str, Pool]:
    if value is not None and not isinstance(value, dict):
        raise BadConfig(key, "must be a mapping of names to pools")
    try:
        return parse_pools(value or {}, key)
    except Refused as error:
        raise BadConfig(error.field, error.reason) from error

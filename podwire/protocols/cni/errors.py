"""The error result of a plugin: a code, a message, and details."""

from enum import IntEnum
from typing import Any


class Code(IntEnum):
    """Codes of the specification, and from 100 on those of our plugins."""

    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    """Nothing is known of it, so nothing needs to be cleaned up."""
    BAD_ENVIRONMENT = 4
    IO_FAILURE = 5
    UNDECODABLE = 6
    BAD_CONFIG = 7
    BAD_NETNS = 8
    """Not in the specification's table, but every implementation uses it."""
    TRY_AGAIN_LATER = 11
    UNAVAILABLE = 50
    LIMITED = 51
    IN_USE = 100
    """An interface, address or port that is wanted belongs to somebody else."""
    NOT_AS_ADDED = 101
    """CHECK found something that is not, or no longer, as ADD made it."""
    REFUSED = 102
    """The kernel said no."""
    INTERNAL = 999


class CniError(Exception):
    """One error on the wire; it is passed on unchanged, never wrapped in another."""

    def __init__(self, code: int, msg: str, details: str = "") -> None:
        super().__init__(msg)
        self.code, self.msg, self.details = code, msg, details

    def __str__(self) -> str:
        return f"{self.msg} ({self.details})" if self.details else self.msg


def encode(error: CniError, version: str) -> dict[str, Any]:
    """The JSON object that a plugin prints."""
    encoded: dict[str, Any] = {"cniVersion": version, "code": int(error.code), "msg": error.msg}
    return {**encoded, "details": error.details} if error.details else encoded


def decode(value: object) -> CniError | None:
    """The error that an object means; None when it is none."""
    if not isinstance(value, dict) or not isinstance(value.get("code"), int) or isinstance(value["code"], bool):
        return None
    return CniError(value["code"], str(value.get("msg", "")), str(value.get("details", "") or ""))

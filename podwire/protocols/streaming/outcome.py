"""How a command ended, as the Status object that the server sends at the end of exec and attach."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.protocols.streaming.channels import Violation

MAX_STATUS = 64 * 1024
"""Bytes; a peer that sends more does not send a Status."""

EXIT_CODE = "ExitCode"
NON_ZERO = "NonZeroExitCode"
_NUMBER = re.compile(r"-?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Exited:
    """The command ran and ended with this code."""

    code: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The command did not run to an end of its own."""

    message: str


Outcome = Exited | Failed


def encode(outcome: Outcome) -> bytes:
    return msgspec.json.encode(_status(outcome))


def _status(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Exited(0):
            return {"metadata": {}, "status": "Success"}
        case Exited(code):
            return {
                "metadata": {},
                "status": "Failure",
                "message": f"command terminated with non-zero exit code: {code}",
                "reason": NON_ZERO,
                "details": {"causes": [{"reason": EXIT_CODE, "message": str(code)}]},
            }
        case Failed(message):
            return {
                "metadata": {},
                "status": "Failure",
                "message": f"Internal error occurred: {message}",
                "reason": "InternalError",
                "details": {"causes": [{"message": message}]},
                "code": 500,
            }


def sentence(outcome: Outcome) -> bytes:
    """The outcome as versions before v4 tell it: text for failures, nothing for success."""
    match outcome:
        case Exited(0):
            return b""
        case Exited(code):
            return f"command terminated with non-zero exit code: {code}".encode()
        case Failed(message):
            return message.encode("utf-8", "backslashreplace")


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None


_decoder = msgspec.json.Decoder(_Status)


class OutcomeReader:
    """Puts the Status together from the pieces in which it may come."""

    def __init__(self) -> None:
        self._seen = b""

    def feed(self, data: bytes) -> Outcome | None:
        """The outcome as soon as it is complete. Raises Violation for what is JSON but no Status, and for too much."""
        self._seen += data
        if len(self._seen) > MAX_STATUS:
            raise Violation(f"a status of more than {MAX_STATUS} bytes")
        try:
            status = _decoder.decode(self._seen)
            if status.status == "Success":
                return Exited(0)
            if status.reason == NON_ZERO and status.details is not None:
                for cause in status.details.causes:
                    if cause.reason == EXIT_CODE and _NUMBER.fullmatch(cause.message):
                        return Exited(int(cause.message))
            return Failed(status.message or status.reason or "the peer did not say why")
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            raise Violation(f"not a status: {error}") from error
        except msgspec.DecodeError:
            return None

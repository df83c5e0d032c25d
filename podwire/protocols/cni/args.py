"""CNI_ARGS: `KEY=VALUE;KEY=VALUE`, the oldest way to tell a plugin something."""

from collections.abc import Collection, Mapping

from podwire.protocols.cni.errors import CniError, Code

IGNORE_UNKNOWN = "IgnoreUnknown"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def parsed(text: str, known: Collection[str] = ()) -> dict[str, str]:
    """The pairs. A key that is not known is an error, unless `IgnoreUnknown` is among them and true."""
    pairs: dict[str, str] = {}
    for part in text.split(";") if text else ():
        key, separator, value = part.partition("=")
        if not separator or "=" in value or not key:
            raise CniError(Code.BAD_ENVIRONMENT, f'ARGS: invalid pair "{part}"', "CNI_ARGS is not KEY=VALUE;…")
        pairs[key] = value
    lenient = pairs.pop(IGNORE_UNKNOWN, "0")
    if lenient not in _TRUE + _FALSE:
        message = f'ARGS: error parsing value of pair "{IGNORE_UNKNOWN}={lenient}"'
        raise CniError(Code.BAD_ENVIRONMENT, message, f"CNI_ARGS: {IGNORE_UNKNOWN} is neither true nor false")
    unknown = [pair for pair in pairs if pair not in known]
    if unknown and lenient not in _TRUE:
        listed = " ".join(f'"{key}={pairs[key]}"' for key in unknown)
        raise CniError(
            Code.BAD_ENVIRONMENT,
            f"ARGS: unknown args [{listed}]",
            f"CNI_ARGS: {', '.join(unknown)} not known, and {IGNORE_UNKNOWN} is not set",
        )
    return {key: value for key, value in pairs.items() if key in known}


def formatted(pairs: Mapping[str, str]) -> str:
    """The text for these pairs; a `;` or `=` in one would be read as another pair."""
    for key, value in pairs.items():
        if any(separator in key + value for separator in ";="):
            raise CniError(Code.BAD_ENVIRONMENT, f"CNI_ARGS: {key}={value} must not contain ';' or '='")
    return ";".join(f"{key}={value}" for key, value in pairs.items())

"""The node's own choice among its devices, as an expression over their attributes."""

from collections.abc import Mapping
from typing import Any

from podwire.protocols.cel import CelError, CompileError, Unavailable, compile_expression, types
from podwire.protocols.settings import BadConfig

VARIABLES = {"attributes": types.map_of(types.STRING, types.DYN)}


class Filter:
    """`attributes["kind"] == "veth"`. Raises BadConfig, which names `filter`."""

    def __init__(self, expression: str) -> None:
        self._program = None
        if not expression:
            return
        try:
            self._program = compile_expression(expression, VARIABLES)
        except CompileError as error:
            raise BadConfig("filter", str(error)) from error
        except Unavailable as error:
            raise BadConfig("filter", f"expressions cannot be evaluated here: {error}") from error
        if self._program.returns not in ("bool", "dyn"):
            raise BadConfig("filter", f"must evaluate to bool, not to {self._program.returns}")

    def why_not(self, attributes: Mapping[str, Any]) -> str:
        """Why a device is not offered; empty when it is. One whose filter cannot be evaluated is not offered."""
        if self._program is None:
            return ""
        known = {name: value for name, value in attributes.items() if value is not None}
        verdict = self._program.run({"attributes": known})
        if isinstance(verdict, CelError):
            return f"the filter failed: {verdict.message}"
        if not isinstance(verdict, bool):
            return f"the filter says {verdict!r}, neither true nor false"
        return "" if verdict else "the filter excludes it"

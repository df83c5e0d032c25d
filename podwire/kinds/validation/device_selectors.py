"""Expressions that select devices: whether they can be compiled, and give a boolean."""

from podwire.kinds.validation.pod_values import Errors
from podwire.protocols.cel import CompileError, Unavailable, compile_expression
from podwire.protocols.cel.devices import LONGEST, VARIABLES
from podwire.protocols.k8sapi.status import invalid, required, too_long

_BOOLEAN = ("bool", "dyn")
"""What only running can tell is allowed."""


def expression(text: str, path: str, errors: Errors) -> None:
    if len(text.encode()) > LONGEST:
        errors.append(too_long(path, LONGEST))
    elif not text:
        errors.append(required(path))
    elif problem := _problem(text):
        errors.append(invalid(path, text, problem))


def _problem(text: str) -> str:
    """What is wrong; nothing can be told of an expression where there is no CEL."""
    try:
        program = compile_expression(text, VARIABLES)
    except CompileError as error:
        return f"compilation failed: {error}"
    except Unavailable:
        return ""
    if program.returns in _BOOLEAN:
        return ""
    return f"must evaluate to bool or the unknown type, not {program.returns}"

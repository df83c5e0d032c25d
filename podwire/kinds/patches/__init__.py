"""The three patch formats as pure functions: an object and a patch in, a new object out.

Nothing is changed in place and what a patch does not touch is shared with the old object. Objects and patches come
from the strict decoder, so they are no deeper than it allows, and so are results.

    PatchError      code 400: not a valid patch; 413: it exceeds a limit; 422: it does not apply to this object
"""

__all__ = ["PatchError"]


class PatchError(Exception):
    """`code` is the HTTP code to answer with; the message says which operation or path, and why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

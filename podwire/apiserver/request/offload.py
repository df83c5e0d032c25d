"""Keeps the event loop free of the work that large requests cause: decoding, defaulting, admission, validation, field
managers; the compilation of large objects once they are stored; and their encoding in protobuf and CBOR.

Three megabytes of YAML take a second of Python. That second is spent in a worker thread: the interpreter switches
threads every few milliseconds, so other requests go on. There is one worker for all large requests, because each would
take a share of the loop's time; they wait for each other, within the deadline of their requests. A small request never
meets it: its steps are plain calls.

A step that runs here works on values of its own request. It does not touch the store, the loop or shared state.
"""

import asyncio
import contextvars
import gc
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from podwire.apiserver.request import context
from podwire.protocols.k8sapi.status import ApiError

LARGE = 16 * 1024
"""Bytes of a body or of a stored object: as many as take about ten milliseconds in the slowest format."""

LARGE_ANSWER = 64 * 1024
"""Bytes of a stored object: as many as take about five milliseconds to be written in protobuf or CBOR."""

SWITCH_SECONDS = 0.001
"""After so long, the worker gives way to the event loop."""

P = ParamSpec("P")
Result = TypeVar("Result")

_WORKER = ThreadPoolExecutor(1, thread_name_prefix="large requests")


def note_size(size: int) -> None:
    """Called with the size of everything that the request will be worked on with: it is small until then."""
    if size > LARGE:
        context.note_large()


def is_large() -> bool:
    """Returns whether the request in progress is large."""
    request = context.current()
    return request is not None and request.large


async def run(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Returns the function's result: called here for a small request, in the worker for a large one."""
    request = context.current()
    if request is None or not request.large:
        return function(*args, **kwargs)
    variables = contextvars.copy_context()

    def call() -> Result:
        try:
            return variables.run(function, *args, **kwargs)
        except ApiError as error:
            # A hundred thousand field errors that no answer shows are freed here, not later on the loop.
            traceback.clear_frames(error.__traceback__)
            raise

    return await in_worker(call)


async def in_worker(function: Callable[[], Result]) -> Result:
    """Returns the function's result, called in the worker whatever the size of the request."""
    with _SWITCHING:
        return await asyncio.get_running_loop().run_in_executor(_WORKER, function)


async def encode(size: int, function: Callable[[], Result]) -> Result:
    """Returns the result of a function that writes an object of so many bytes in protobuf or CBOR."""
    return await in_worker(function) if size > LARGE_ANSWER else function()


async def for_size(size: int, function: Callable[[], Result]) -> Result:
    """Returns the result of a function that works on so many bytes outside of a request: an informer that compiles what
    was stored. It has no effect but its result, which the caller publishes on the loop.

    The garbage collector need not visit the result, which has up to half a million objects and no cycles: all requests
    would wait 200 ms for each full collection. It is freed by its reference counts all the same.
    """
    if size <= LARGE:
        return function()
    result = await in_worker(function)
    gc.freeze()
    return result


class _Switching:
    """Makes the interpreter switch threads more often while the worker has something to do.

    The usual 5 ms add up in each other request. Always less than that would cost small writes a tenth of their time,
    which they would spend on switching between the event loop and the thread that commits.
    """

    def __init__(self) -> None:
        self._large = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        if not self._large:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
        self._large += 1

    def __exit__(self, *_error: object) -> None:
        self._large -= 1
        if not self._large:
            sys.setswitchinterval(self._usual)


_SWITCHING = _Switching()

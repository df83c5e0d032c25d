"""The order in which tuning, bandwidth and firewall do their part after a plugin that made the link.

ADD: 1. take back what an earlier ADD did.  2. Look at what is asked for and at what is there, and refuse.  3. Write the
record.  4. Do it.  Whatever fails, the record is released.

DEL and GC need the record alone: neither the namespace nor `prevResult` nor the configuration.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from podwire.cniplugins.attachments import Attachments, Record, new_record, suffered
from podwire.cniplugins.garbage_collection import collect
from podwire.cniplugins.skeleton import Call, Plugin, pod_netns
from podwire.failpoints import declare, failpoint
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result


class Points(NamedTuple):
    """The failpoints of a plugin."""

    recorded: str
    done: str
    undone: str


def declared(plugin: str) -> Points:
    steps = {
        "recorded": "the record is written, nothing is done yet",
        "done": "all is done, the runtime was not told",
        "undone": "DEL: everything is undone, the record is still there",
    }
    return Points(**{step: declare(f"{plugin}.{step}", when) for step, when in steps.items()})


class Part(NamedTuple):
    """What a plugin does by itself."""

    name: str
    points: Points
    wanted: Callable[[Call], bool]
    """Whether anything is asked for; refuses what cannot be meant."""
    prepare: Callable[[Call, Record, Result], Record]
    """Completes the record by all that undoing needs; changes nothing."""
    do: Callable[[Call, Record, Result], Result]
    undo: Callable[[Call, Record], None]
    """Also of what was never done, or is undone by somebody else."""
    check: Callable[[Call, Record, Result], None]
    sets: tuple[str, ...] = ()
    """Sets whose elements are marked."""
    bridge_sets: tuple[str, ...] = ()
    """Such sets in nft's family of bridges."""
    links: bool = False
    """Whether it makes links on the host."""
    check_usable: Callable[[Call], None] = lambda _call: None
    """Raises when this host cannot do it."""


def add(part: Part, call: Call) -> Result:
    previous = _previous(part, call)
    wanted = part.wanted(call)
    inode = pod_netns(call)
    attachments = Attachments(call.config, part.name)
    with attachments.turn(call):
        earlier = attachments.read(call)
        if earlier is not None:
            release(part, call, earlier, attachments)
        if not wanted:
            return previous
        record = part.prepare(call, new_record(call, inode), previous)
        attachments.write(record)
        try:
            failpoint(part.points.recorded)
            result = part.do(call, record, previous)
        except BaseException as error:
            _take_back(part, call, record, attachments, error)
            raise
    failpoint(part.points.done)
    return result


def _previous(part: Part, call: Call) -> Result:
    previous = call.config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, f"prevResult: missing; {part.name} comes after a plugin that makes a link")
    return previous


def _take_back(part: Part, call: Call, record: Record, attachments: Attachments, error: BaseException) -> None:
    try:
        release(part, call, record, attachments)
    except Exception as also:  # noqa: BLE001 - the first error is the one to tell of
        error.add_note(f"and it is not undone: {also}")


def release(part: Part, call: Call, record: Record, attachments: Attachments) -> None:
    part.undo(call, record)
    failpoint(part.points.undone)
    attachments.remove(record)


def delete(part: Part, call: Call) -> None:
    attachments = Attachments(call.config, part.name)
    with attachments.turn(call):
        record = attachments.read(call)
        if record is not None:
            release(part, call, record, attachments)


def check(part: Part, call: Call) -> None:
    previous = _previous(part, call)
    if not part.wanted(call):
        return
    pod_netns(call)
    record = Attachments(call.config, part.name).peek(call)
    if record is None:
        told = f"{part.name} has done nothing for {call.invocation.container_id} {call.invocation.ifname}"
        raise CniError(Code.NOT_AS_ADDED, told)
    part.check(call, record, previous)


def agree(right: bool, otherwise: str) -> None:
    """CHECK goes on, or says what is not as it was made."""
    if not right:
        raise CniError(Code.NOT_AS_ADDED, otherwise)


def gc(part: Part, call: Call, valid: Valid) -> None:
    attachments = Attachments(call.config, part.name)
    collect(
        call,
        valid,
        attachments,
        lambda record, then: release(part, then, record, attachments),
        sets=part.sets,
        bridge_sets=part.bridge_sets,
        links=part.links,
    )


def status(part: Part, call: Call) -> None:
    """Whether the next ADD could succeed: it can be meant, its record can be written, this host can do it."""
    part.wanted(call)
    attachments = Attachments(call.config, part.name)
    attachments.check_writable()
    with suffered(attachments):
        part.check_usable(call)


def plugin(part: Part) -> Plugin:
    return Plugin(
        part.name,
        add=partial(add, part),
        check=partial(check, part),
        delete=partial(delete, part),
        gc=partial(gc, part),
        status=partial(status, part),
    )

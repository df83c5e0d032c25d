"""Reads the script of a fake plugin from YAML, strictly."""

import random
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from podwire.nri.fake import actions
from podwire.nri.fake.actions import Action, Rule
from podwire.nri.fake.script import REGISTER, Script
from podwire.nri.script import At, load, message_at
from podwire.protocols.grpc_status import RpcError, from_code
from podwire.protocols.nri import events, methods
from podwire.protocols.nri import nri_pb2 as pb

CODES = {error("").name: error.code for error in RpcError.__subclasses__()}
RESPONSES: dict[str, type[Message]] = {
    method.name: method.response for method in methods.PLUGIN if method.name != "StateChange"
}

_TOP = ("name", "index", "version", "subscribe", "speaks", "reconnect", "on")
_SPEAKS = {"both": (True, True), "calls": (True, False), "StateChange": (False, True), "nothing": (False, False)}


def read_script(text: str, source: str = "script") -> Script:
    """Raises BadScript."""
    top = load(text, source).mapping(_TOP)
    calls, state_change = top["speaks"].one_of(_SPEAKS) if "speaks" in top else (True, True)
    plain = Script()
    return Script(
        name=top["name"].text() if "name" in top else plain.name,
        index=top["index"].text() if "index" in top else plain.index,
        version=top["version"].text() if "version" in top else plain.version,
        events=_mask(top["subscribe"]) if "subscribe" in top else plain.events,
        calls=calls,
        state_change=state_change,
        reconnect=top["reconnect"].seconds() if "reconnect" in top else None,
        on=_on(top["on"]) if "on" in top else {},
    )


def _mask(at: At) -> int:
    """`all`, a list of events, or the number itself, which may be wrong."""
    if at.is_list:
        return events.Subscription.of(*(item.one_of(events.BY_TITLE) for item in at.items())).mask
    if at.value() == "all":
        return events.ALL_EVENTS
    return at.number()


def _on(at: At) -> dict[str, tuple[Rule, ...]]:
    return {call: _rules(value, call) for call, value in at.mapping((REGISTER, *RESPONSES)).items()}


def _rules(at: At, call: str) -> tuple[Rule, ...]:
    """One rule for all calls, or a list of rules."""
    return tuple(_rule(item, call) for item in (at.items() if at.is_list else [at]))


_ABOUT = ("delay", "times", "pod", "container", "update-before", "update-after")


def _rule(at: At, call: str) -> Rule:
    keys = at.mapping((*ACTIONS, *_ABOUT))
    given = [action for action in ACTIONS if action in keys]
    if len(given) > 1:
        raise keys[given[1]].fail(f"a rule has one action, and {given[0]} is given already")
    name = given[0] if given else "answer"
    return Rule(
        ACTIONS[name](keys[name], call) if given else actions.Answer(),
        name,
        delay=keys["delay"].seconds() if "delay" in keys else 0.0,
        times=keys["times"].number() if "times" in keys else None,
        pod=keys["pod"].text() if "pod" in keys else "",
        container=keys["container"].text() if "container" in keys else "",
        update_before=_updates(keys.get("update-before")),
        update_after=_updates(keys.get("update-after")),
    )


def _updates(at: At | None) -> tuple[pb.ContainerUpdate, ...]:
    return () if at is None else tuple(message_at(item, pb.ContainerUpdate) for item in at.items())


# Each action by its key.


def _answer(at: At, call: str) -> Action:
    if call == REGISTER:
        raise at.fail("RegisterPlugin is sent by the plugin itself: set name, index and version instead")
    return actions.Answer(message_at(at, RESPONSES[call]))


def _fail(at: At, _call: str) -> Action:
    """A message, or code and message."""
    if not at.is_mapping:
        return actions.Fail(from_code(2, at.text()))
    keys = at.mapping(("code", "message"))
    code = keys["code"].one_of(CODES) if "code" in keys else 2
    return actions.Fail(from_code(code, keys["message"].text() if "message" in keys else "as the script says"))


def _garble(at: At, _call: str) -> Action:
    """A number of reproducible random bytes, or bytes in hex."""
    value = at.value()
    if isinstance(value, int) and not isinstance(value, bool):
        return actions.Garble(random.Random(value).randbytes(value))
    try:
        return actions.Garble(bytes.fromhex(at.text()))
    except ValueError:
        raise at.fail("a number of bytes, or bytes in hex in quotes, are wanted here") from None


def _flag(action: Action) -> Callable[[At, str], Action]:
    def read(at: At, _call: str) -> Action:
        if not at.truth():
            raise at.fail("say true, or leave it out")
        return action

    return read


def _refuse_split(at: At, call: str) -> Action:
    if call != methods.SYNCHRONIZE.name:
        raise at.fail("only Synchronize comes in batches")
    return _flag(actions.RefuseSplit())(at, call)


def _positive(at: At) -> int:
    if (number := at.number()) < 1:
        raise at.fail("at least 1 is wanted here")
    return number


ACTIONS: dict[str, Callable[[At, str], Action]] = {
    "answer": _answer,
    "fail": _fail,
    "silent": _flag(actions.Silent()),
    "disconnect": _flag(actions.Disconnect()),
    "half-close": _flag(actions.Disconnect(half=True)),
    "exit": lambda at, _: actions.Leave(at.number()),
    "kill": _flag(actions.Leave(None)),
    "garble": _garble,
    "undecodable": _flag(actions.Undecodable()),
    "oversize": lambda at, _: actions.Oversize(_positive(at)),
    "stream": lambda at, _: actions.OnStream(at.number()),
    "twice": _flag(actions.Twice()),
    "pieces": lambda at, _: actions.InPieces(_positive(at)),
    "stop-reading": lambda at, _: actions.StopReading(at.seconds()),
    "refuse-split": _refuse_split,
}


def default_answer(script: Script, call: str, request: Any) -> Message:
    """The response that changes nothing."""
    match call:
        case "Configure":
            # As the wire has it: the field is signed, and a script may set every bit.
            mask = script.events & 0xFFFFFFFF
            return pb.ConfigureResponse(events=mask - 2**32 if mask >= 2**31 else mask)
        case "Synchronize":
            return pb.SynchronizeResponse(more=request.more)
    return RESPONSES.get(call, pb.Empty)()

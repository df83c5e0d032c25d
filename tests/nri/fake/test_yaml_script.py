"""Scripts of fake plugins."""

import pytest

from podwire.nri.fake import actions, read_script
from podwire.nri.script import BadScript
from podwire.protocols.grpc_status import PermissionDenied
from podwire.protocols.nri.events import ALL_EVENTS


def test_an_empty_script_is_a_good_plugin():
    script = read_script("")
    assert (script.name, script.index, script.events, script.on) == ("fake", "50", ALL_EVENTS, {})


@pytest.mark.parametrize(
    ("written", "mask"),
    [("all", ALL_EVENTS), ("[RunPodSandbox, StopPodSandbox]", 3), ("0x10000", 65536), ("0", 0), ("[]", 0)],
)
def test_events_are_names_or_a_number_that_may_be_wrong(written, mask):
    assert read_script(f"subscribe: {written}").events == mask


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("fail: no", actions.Fail),
        ("disconnect: true", actions.Disconnect()),
        ("half-close: true", actions.Disconnect(half=True)),
        ("exit: 3", actions.Leave(3)),
        ("kill: true", actions.Leave(None)),
        ("garble: '00ff'", actions.Garble(b"\x00\xff")),
        ("oversize: 9", actions.Oversize(9)),
        ("stream: 4", actions.OnStream(4)),
        ("stop-reading: 2s", actions.StopReading(2.0)),
        ("delay: 1", actions.Answer()),
    ],
)
def test_an_action_by_its_key(written, action):
    [turn] = read_script(f"on: {{RunPodSandbox: {{{written}}}}}").on["RunPodSandbox"]
    assert turn.action == action if not isinstance(action, type) else isinstance(turn.action, action)


def test_an_error_has_a_code_and_a_sentence():
    [turn] = read_script("on: {RunPodSandbox: {fail: {code: PERMISSION_DENIED, message: no}}}").on["RunPodSandbox"]
    assert isinstance(turn.action.error, PermissionDenied)
    assert str(turn.action.error) == "no"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nam: x", "script:1: nam: is unknown; known are name, index"),
        ("on: {Run: {}}", "on.Run: is unknown; known are RegisterPlugin, Configure"),
        ("on: {RunPodSandbox: {silent: true, kill: true}}", "a rule has one action, and silent is given already"),
        ("on: {RunPodSandbox: {silent: false}}", "say true, or leave it out"),
        ("on: {RunPodSandbox: {refuse-split: true}}", "only Synchronize comes in batches"),
        ("on: {RunPodSandbox: {garble: xyz}}", "or bytes in hex"),
        ("on: {RunPodSandbox: {oversize: 0}}", "at least 1"),
        ("on: {RunPodSandbox: {fail: {code: NO}}}", "'NO' must be one of CANCELLED"),
        ("on: {RunPodSandbox: {answer: {adjust: {}}}}", "RunPodSandboxResponse has no such field"),
        ("on: {RegisterPlugin: {answer: {}}}", "sent by the plugin itself"),
        ("speaks: French", "'French' must be one of both, calls, StateChange, nothing"),
    ],
)
def test_errors_name_the_key(text, says):
    with pytest.raises(BadScript, match=says):
        read_script(text)

"""The mark of a plugin's caller."""

import pytest

from podwire.protocols.cni.caller import Caller


def test_a_caller_is_read_as_it_was_written():
    caller = Caller(4711, 123456, 4026531836, "254-77", 9)
    assert caller.encode() == "4711:123456:4026531836:254-77:9"
    assert Caller.parse(caller.encode()) == caller


@pytest.mark.parametrize(
    "text", ["", "1:2:3:4", "x:2:3:4:5", "1:2:3:4:5:6", "-1:2:3:4:5", f"{'9' * 30}:2:3:4:5", "²:2:3:4:5"]
)
def test_another_text_names_no_caller(text):
    assert Caller.parse(text) is None

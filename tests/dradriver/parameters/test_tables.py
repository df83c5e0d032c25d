"""Both tables, through the driver's own eyes."""

import pytest

from podwire.dradriver.offers import Refused

CLAIM = "spec.devices.config[0].opaque.parameters"
CLASS = "deviceClass net.example spec.config[0].opaque.parameters"


def test_what_cannot_be_is_refused_with_its_field_and_the_reason(refused_case, decide_case):
    with pytest.raises(Refused) as refused:
        decide_case(refused_case)
    place = CLASS if refused_case.get("blames") == "class" or "says" not in refused_case else CLAIM
    assert refused.value.field == f"{place}.{refused_case['field']}"
    assert refused_case["reason"] in refused.value.reason
    assert str(refused.value) == f"{refused.value.field}: {refused.value.reason}"


def test_what_can_be_had_is_decided(accepted_case, decide_case):
    assert decide_case(accepted_case) == decide_case(accepted_case)

"""Taints that a pod tolerates."""

import pytest

from podwire.objects.nodes import Taint
from podwire.objects.pods import Toleration
from podwire.objects.taints import tolerates, untolerated

TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration(key="gpu", value="yes", effect="NoSchedule"), True, id="the very taint"),
        pytest.param(Toleration(key="gpu", value="yes"), True, id="any effect"),
        pytest.param(Toleration(key="gpu", value="yes", operator=""), True, id="an operator that was left out"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="any value"),
        pytest.param(Toleration(operator="Exists"), True, id="any taint"),
        pytest.param(Toleration(operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(key="gpu"), False, id="another value"),
        pytest.param(Toleration(key="disk", operator="Exists"), False, id="another key"),
    ],
)
def test_a_taint_is_tolerated_or_not(toleration, tolerated):
    assert tolerates(toleration, TAINT) is tolerated
    assert list(untolerated([TAINT], [toleration], ("NoSchedule",))) == ([] if tolerated else [TAINT])


def test_only_taints_of_the_effects_in_question_count():
    assert list(untolerated([TAINT], [], ("NoExecute",))) == []

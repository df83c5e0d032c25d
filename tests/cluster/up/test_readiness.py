import pytest

from podwire.cluster.up.readiness import is_ready
from podwire.objects.nodes import Condition

BEGUN = 1_700_000_000.7  # 2023-11-14T22:13:20.7Z


def ready(status="True", heartbeat="2023-11-14T22:13:20Z"):
    return Condition(type="Ready", status=status, last_heartbeat_time=heartbeat)


@pytest.mark.parametrize(
    ("condition", "seen_before", "expected"),
    [
        pytest.param(None, True, False, id="a node that has said nothing"),
        pytest.param(ready("False"), False, False, id="one that is not ready"),
        pytest.param(ready(), True, True, id="what was said in the second of the start"),
        pytest.param(ready(heartbeat="2023-11-14T22:13:19Z"), True, False, id="what the last kubelet said"),
        pytest.param(ready(heartbeat="2023-11-14T22:13:19Z"), False, True, id="what is said now, by a slow clock"),
        pytest.param(ready(heartbeat=None), True, False, id="what was said at no time"),
    ],
)
def test_a_node_is_ready_when_its_present_kubelet_reports_it(condition, seen_before, expected):
    assert is_ready(condition, BEGUN, seen_before=seen_before) is expected

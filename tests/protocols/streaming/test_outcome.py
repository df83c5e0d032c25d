import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.streaming.channels import Violation
from podwire.protocols.streaming.outcome import MAX_STATUS, Exited, Failed, OutcomeReader, encode


def test_success_is_a_status():
    assert json.loads(encode(Exited(0))) == {"metadata": {}, "status": "Success"}


def test_an_exit_code_is_a_cause():
    status = json.loads(encode(Exited(137)))
    assert status["status"] == "Failure"
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "137"}]


def test_a_failure_is_an_internal_error():
    status = json.loads(encode(Failed("no such program")))
    assert (status["status"], status["reason"], status["code"]) == ("Failure", "InternalError", 500)
    assert status["message"] == "Internal error occurred: no such program"


outcomes = st.builds(Exited, st.integers(0, 255)) | st.builds(Failed, st.text(max_size=50))


@given(outcomes, st.data())
def test_an_outcome_arrives_however_it_is_cut(outcome, data):
    status = encode(outcome)
    cut = data.draw(st.integers(0, len(status) - 1))
    reader = OutcomeReader()
    assert reader.feed(status[:cut]) is None
    result = reader.feed(status[cut:])
    if isinstance(outcome, Exited):
        assert result == outcome
    else:
        assert result == Failed(f"Internal error occurred: {outcome.message}")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        pytest.param({"status": "Success"}, Exited(0), id="no metadata"),
        pytest.param({"status": "Failure", "message": "why"}, Failed("why"), id="a message"),
        pytest.param({"status": "Failure", "reason": "Forbidden"}, Failed("Forbidden"), id="a reason"),
        pytest.param({}, Failed("the peer did not say why"), id="nothing"),
        pytest.param(
            {
                "reason": "NonZeroExitCode",
                "message": "m",
                "details": {"causes": [{"reason": "ExitCode", "message": "-"}]},
            },
            Failed("m"),
            id="an exit code that is not a number",
        ),
        pytest.param({"reason": "NonZeroExitCode", "message": "m", "details": None}, Failed("m"), id="no details"),
    ],
)
def test_statuses_of_others_are_understood(status, outcome):
    assert OutcomeReader().feed(json.dumps(status).encode()) == outcome


@pytest.mark.parametrize("data", [b"[]", b'"text"', b'{"status":7}', b'{"status":"\xff"}', b"x" * (MAX_STATUS + 1)])
def test_an_invalid_status_is_rejected(data):
    with pytest.raises(Violation):
        OutcomeReader().feed(data)

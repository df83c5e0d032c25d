import pytest

from tests.eventually import NotInTime, eventually, eventually_async


def test_eventually_returns_the_first_true_result():
    values = iter([0, "", "ready"])
    assert eventually(lambda: next(values), interval=0) == "ready"


def test_eventually_retries_a_failed_assertion():
    values = iter([1, 2, 3])

    def is_three():
        assert next(values) == 3
        return True

    assert eventually(is_three, interval=0)


def test_eventually_reports_the_last_result_and_the_explanation():
    with pytest.raises(NotInTime, match=r"did not hold within 0 s; last: \[\]; the log is empty"):
        eventually(list, within=0, explain=lambda: "the log is empty")


def test_eventually_does_not_swallow_other_errors():
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 / 0)


async def test_eventually_async_takes_plain_functions_and_coroutines():
    values = iter([None, 7])

    async def ask():
        return next(values)

    assert await eventually_async(ask, interval=0) == 7
    assert await eventually_async(lambda: 8) == 8
    with pytest.raises(NotInTime):
        await eventually_async(lambda: False, within=0)

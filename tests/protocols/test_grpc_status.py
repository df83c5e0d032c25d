import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.grpc_status import (
    MAX_DETAILS,
    Internal,
    NotFound,
    RpcError,
    Unknown,
    details,
    from_code,
    from_exception,
)


@pytest.mark.parametrize("kind", RpcError.__subclasses__(), ids=lambda each: each.__name__)
def test_a_code_becomes_its_error_and_back(kind):
    error = from_code(kind.code, "why")
    assert type(error) is kind
    assert str(error) == "why"
    assert error.name.replace("_", "").lower() == kind.__name__.lower()


def test_all_codes_that_there_are_have_an_error():
    assert sorted(item.code for item in RpcError.__subclasses__()) == list(range(1, 17))
    assert type(from_code(99, "?")) is Unknown


def test_rpc_errors_are_sent_and_other_exceptions_lose_their_text():
    own = NotFound("x")
    assert from_exception(own, "Version") is own
    other = from_exception(ValueError("/etc/secret"), "Version")
    assert type(other) is Internal
    assert "secret" not in str(other)
    assert "Version" in str(other)


@given(st.text(st.characters(exclude_categories=()), max_size=3000))
def test_any_sentence_can_travel(text):
    sent = details(NotFound(text))
    as_header = sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in sent.encode())
    assert as_header <= MAX_DETAILS + len(" […]".encode()) * 3
    if as_header <= MAX_DETAILS and not any("\ud800" <= item <= "\udfff" for item in text):
        assert sent == text


def test_a_sentence_is_cut_between_characters():
    assert details(NotFound("a" * (MAX_DETAILS - 4) + "éé")) == "a" * (MAX_DETAILS - 4) + " […]"

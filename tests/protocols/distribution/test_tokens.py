"""Requests for tokens, their answers, and error bodies."""

import pytest

from podwire.protocols.distribution import BadToken, Challenge, Login, describe_error, parse_token, token_request


def challenge(**parameters: str) -> Challenge:
    return Challenge("bearer", parameters)


def test_the_scope_is_that_of_the_repository_unless_the_registry_names_one():
    asked = token_request(challenge(realm="https://auth.test/token", service="reg"), "a/b", Login())
    assert (asked.method, asked.url) == ("GET", "https://auth.test/token?service=reg&scope=repository%3Aa%2Fb%3Apull")
    named = token_request(challenge(realm="https://auth.test/t?x=1", scope="s"), "a/b", Login())
    assert named.url == "https://auth.test/t?x=1&scope=s"


@pytest.mark.parametrize("realm", ["", "auth.test", "file:///etc/passwd", "https://user@auth.test/", "https:///x"])
def test_a_realm_that_is_not_a_token_server_is_refused(realm):
    with pytest.raises(BadToken):
        token_request(challenge(realm=realm), "a/b", Login())


@pytest.mark.parametrize(("body", "token"), [(b'{"token":"t"}', "t"), (b'{"access_token":"a"}', "a")])
def test_both_names_of_a_token_are_read(body, token):
    assert parse_token(body) == token


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"token":1}', b'{"token":"a\\r\\nX: y"}', b'{"token":"\\u00e9"}']
)
def test_an_answer_without_a_usable_token_is_refused(body):
    with pytest.raises(BadToken):
        parse_token(body)


def test_credentials_do_not_show_in_any_text_of_them():
    login = Login("ann", "secret", "identity", "registry")
    shown = repr(login) + repr(token_request(challenge(realm="https://auth.test/"), "a", login))
    assert not any(word in shown for word in ("secret", "identity", "registry"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"errors":[{"code":"DENIED","message":"no"}]}', "403: DENIED: no"),
        (b'{"errors":[{"code":"A"},{"message":"b"}]}', "403: A; b"),
        (b"<html>", "403"),
        (b'{"details":"too many"}', "403: too many"),
        (b'{"errors":[{"message":"a\\u001b[31m\\nb"}]}', "403: a[31mb"),
    ],
)
def test_error_bodies_are_short_and_printable(body, text):
    assert describe_error(403, body) == text

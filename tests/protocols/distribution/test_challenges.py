"""Demands for credentials as registries write them."""

import pytest

from podwire.protocols.distribution import BadChallenge, Challenge, parse_challenges


@pytest.mark.parametrize(
    ("headers", "challenges"),
    [
        ([], []),
        (['Basic realm="Registry"'], [Challenge("basic", {"realm": "Registry"})]),
        (["Negotiate"], [Challenge("negotiate", {})]),
        (["Negotiate YWJj==, Basic realm=x"], [Challenge("negotiate", {}), Challenge("basic", {"realm": "x"})]),
        (
            ['Bearer realm="https://auth.test/token",service="reg",scope="repository:a/b:pull,push"'],
            [
                Challenge(
                    "bearer",
                    {"realm": "https://auth.test/token", "service": "reg", "scope": "repository:a/b:pull,push"},
                )
            ],
        ),
        (
            ['Bearer realm="a", Basic realm="b"'],
            [Challenge("bearer", {"realm": "a"}), Challenge("basic", {"realm": "b"})],
        ),
        (
            ['Bearer realm="a"', "Basic realm=b"],
            [Challenge("bearer", {"realm": "a"}), Challenge("basic", {"realm": "b"})],
        ),
        (['Basic REALM = "say \\"hi\\""'], [Challenge("basic", {"realm": 'say "hi"'})]),
    ],
)
def test_challenges_are_read_in_their_order(headers, challenges):
    assert parse_challenges(headers) == challenges


@pytest.mark.parametrize("header", ['Bearer realm="open', "=", '"x"', "Basic " + "a" * 20_000])
def test_what_cannot_be_read_is_refused(header):
    with pytest.raises(BadChallenge):
        parse_challenges([header])

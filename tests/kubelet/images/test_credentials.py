"""Credentials by registry."""

import base64
import json

import pytest

from podwire.kubelet.images.credentials import BadSecret, credentials

HUB = "https://index.docker.io/v1/"


def encoded(value) -> str:
    return base64.b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).decode()


def secret(logins, *, old=False):
    kind, key, held = (
        ("kubernetes.io/dockercfg", ".dockercfg", logins)
        if old
        else ("kubernetes.io/dockerconfigjson", ".dockerconfigjson", {"auths": logins})
    )
    return {"metadata": {"name": "login"}, "type": kind, "data": {key: encoded(held)}}


@pytest.mark.parametrize(
    ("repository", "places", "expected"),
    [
        pytest.param("r.test/app", ["r.test", "other.test"], ["r.test"], id="by its host"),
        pytest.param("r.test:5000/app", ["r.test", "r.test:5000"], ["r.test:5000"], id="the port counts"),
        pytest.param("r.test/a/b", ["r.test", "r.test/a", "r.test/x"], ["r.test/a", "r.test"], id="the closest first"),
        pytest.param("eu.r.test/app", ["*.r.test", "*.test"], ["*.r.test"], id="a star stays within a part"),
        pytest.param("r.test/app", ["https://r.test/v1/"], ["https://r.test/v1/"], id="with the API's version"),
        pytest.param("r.test/app", ["http://r.test"], ["http://r.test"], id="with a scheme"),
        pytest.param("docker.io/library/a", [HUB], [HUB], id="the hub"),
        pytest.param("r.test/app", [HUB], [], id="the hub's are for the hub"),
    ],
)  # fmt: skip
def test_logins_that_fit(repository, places, expected):
    fitting = credentials(repository, [secret({place: {"username": place, "password": "p"} for place in places})])
    assert [item.auth.username for item in fitting] == expected


def test_a_login_is_a_name_and_a_password_or_both_in_one():
    [one] = credentials("r.test/app", [secret({"r.test": {"username": "bob", "password": "p:q"}})])
    [other] = credentials("r.test/app", [secret({"r.test": {"auth": encoded(b"bob:p:q")}}, old=True)])
    assert (one.auth.username, one.auth.password) == (other.auth.username, other.auth.password) == ("bob", "p:q")
    assert one.secret.is_like(other.secret)


def test_secrets_of_other_kinds_have_no_logins():
    assert credentials("r.test/app", [{"metadata": {"name": "x"}, "type": "Opaque", "data": {"a": "YQ=="}}]) == []


@pytest.mark.parametrize("held", [b"{", b"[]", b'{"auths": {"r.test": 5}}', b'{"auths": []}'])
def test_a_secret_that_is_damaged_is_named(held):
    damaged = {**secret({}), "data": {".dockerconfigjson": encoded(held)}}
    with pytest.raises(BadSecret, match=r"secret login: \.dockerconfigjson is not a list of logins"):
        credentials("r.test/app", [damaged])


@pytest.mark.parametrize("auth", ["%%%", encoded(b"\xff:x"), encoded(b"nobody")])
def test_a_damaged_pull_secret_is_reported(auth):
    with pytest.raises(BadSecret, match="auth: "):
        credentials("r.test/app", [secret({"r.test": {"auth": auth}})])

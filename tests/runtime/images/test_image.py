"""The user that an image asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.runtime.images import BadImage, Image, ImageConfig, parse_user
from podwire.runtime.images.image import User


def image(user: str) -> Image:
    return Image(id="", names=(), digests=(), size=0, layers=(), config=ImageConfig(user=user))


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("", None),
        ("0", User(0)),
        ("0:0", User(0, 0)),
        ("1000", User(1000)),
        ("00012", User(12)),
        ("4294967294", User(4294967294)),
        ("www-data", User("www-data")),
        ("www-data:33", User("www-data", 33)),
        ("1000:users", User(1000, "users")),
        ("1000abc", User("1000abc")),
        ("machine$", User("machine$")),
    ],
)
def test_a_user_is_a_number_or_a_name(text, user):
    assert parse_user(text) == user


@pytest.mark.parametrize(
    "text",
    [
        "4294967295",
        "4294967296",
        "99999999999999999999",
        "9" * 5000,
        "-1",
        "+1",
        " 1",
        "1 ",
        "root\n",
        "0x0",
        "1:",
        ":1",
        ":",
        "a:b:c",
        "1:4294967295",
        "٣",
        "a b",
        "a/b",
        "a" * 300,
        "$",
    ],
)
def test_any_other_user_is_refused_where_it_is_used_and_shown_as_it_is(text):
    if text != "0x0":  # that one is a name like any other
        with pytest.raises(BadImage, match=r"config\.User"):
            parse_user(text)
    assert image(text).uid is None
    assert image(text).username == text


@given(st.text(max_size=20))
def test_nothing_but_a_plain_zero_is_shown_as_root(text):
    shown = image(text)
    if shown.uid == 0:
        assert set(text.partition(":")[0]) == {"0"}
    assert (shown.uid is None and not shown.username) == (text == "")


@pytest.mark.parametrize(
    ("text", "uid", "name"), [("1002:1002", 1002, ""), ("www-data", None, "www-data"), ("", None, "")]
)
def test_an_image_shows_a_number_or_a_name(text, uid, name):
    assert (image(text).uid, image(text).username) == (uid, name)

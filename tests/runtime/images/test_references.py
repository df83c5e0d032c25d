"""Names as every client writes them, and the one form in which they are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.runtime.images import references
from podwire.runtime.images.errors import BadReference

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("me/app", "docker.io/me/app:latest"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/library/busybox", "docker.io/library/busybox:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("localhost:5000/app:v1", "localhost:5000/app:v1"),
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ("[2001:db8::1]:5000/app", "[2001:db8::1]:5000/app:latest"),
        ("UPPER/app", "UPPER/app:latest"),
        (f"busybox@sha256:{HEX}", f"docker.io/library/busybox@sha256:{HEX}"),
        (f"busybox:1.36@sha256:{HEX}", f"docker.io/library/busybox@sha256:{HEX}"),
        ("a.b/c__d/e-f.g_h:T_a.g-1", "a.b/c__d/e-f.g_h:T_a.g-1"),
        ("a---b", "docker.io/library/a---b:latest"),
    ],
)
def test_a_reference_has_one_whole_form(text, whole):
    assert str(references.parse(text)) == whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        " busybox",
        "busybox\n",
        "Busybox",
        "busybox:",
        "busybox:-tag",
        "busybox:" + "t" * 129,
        "busybox@",
        "busybox@sha256:abc",
        f"busybox@sha512:{HEX}{HEX}",
        f"busybox@sha256:{HEX.upper()}",
        HEX,
        "/busybox",
        "busybox/",
        "a//b",
        "../../etc/passwd",
        "a/../b",
        "a_-b",
        "_a",
        "exa mple.com/a",
        "-bad-.com/a",
        "example.com:port/a",
        "busybox:tag:tag",
        "example.com/" + "a" * 255,
        "busybóx",
        "busybox:tàg",
        "a\0b",
    ],
)
def test_an_invalid_reference_is_refused(text):
    with pytest.raises(BadReference):
        references.parse(text)


@given(st.text(alphabet="abAB01._-:/@[] \n", max_size=30))
def test_a_whole_form_is_its_own_whole_form(text):
    try:
        whole = str(references.parse(text))
    except BadReference:
        return
    assert str(references.parse(whole)) == whole

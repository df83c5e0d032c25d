"""How images are called."""

import pytest

from podwire.kubelet.images.names import BadImageName, ImageName, default_policy, image_name, with_tag

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("busybox", ImageName("docker.io/library/busybox", "latest", "")),
        ("busybox:1.36", ImageName("docker.io/library/busybox", "1.36", "")),
        ("team/app", ImageName("docker.io/team/app", "latest", "")),
        ("index.docker.io/app", ImageName("docker.io/library/app", "latest", "")),
        ("localhost/app:x", ImageName("localhost/app", "x", "")),
        ("localhost:5000/app", ImageName("localhost:5000/app", "latest", "")),
        ("[fd00::1]:5000/app:1", ImageName("[fd00::1]:5000/app", "1", "")),
        ("Registry/app", ImageName("Registry/app", "latest", "")),
        ("registry.test/a/b_c/d__e/f-g.h:v_1", ImageName("registry.test/a/b_c/d__e/f-g.h", "v_1", "")),
        (f"registry.test/app@{DIGEST}", ImageName("registry.test/app", "", DIGEST)),
        (f"registry.test/app:1@{DIGEST}", ImageName("registry.test/app", "1", DIGEST)),
        (DIGEST, ImageName("docker.io/library/sha256", "ab" * 32, "")),
    ],
)
def test_a_name_is_read(text, name):
    assert image_name(text) == name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid reference format"),
        ("a b", "invalid reference format"),
        ("app:", "invalid reference format"),
        ("app@sha256:12", "invalid reference format"),
        ("a//b", "invalid reference format"),
        ("-a", "invalid reference format"),
        ("app:" + "x" * 129, "invalid reference format"),
        ("App", "invalid reference format: repository name (library/App) must be lowercase"),
        ("registry.test/App:1", "invalid reference format: repository name (App) must be lowercase"),
        ("ab" * 32, f"invalid repository name ({'ab' * 32}), cannot specify 64-byte hexadecimal strings"),
        ("registry.test/" + "a" * 256, "repository name must not be more than 255 characters"),
    ],
)
def test_an_invalid_image_name_is_rejected(text, problem):
    with pytest.raises(BadImageName) as raised:
        image_name(text)
    assert str(raised.value) == problem


@pytest.mark.parametrize(
    ("text", "asked", "policy"),
    [
        ("app", "app:latest", "Always"),
        ("app:latest", "app:latest", "Always"),
        ("app:1", "app:1", "IfNotPresent"),
        (f"app@{DIGEST}", f"app@{DIGEST}", "IfNotPresent"),
        (f"app:latest@{DIGEST}", f"app:latest@{DIGEST}", "Always"),
        ("localhost:5000/app", "localhost:5000/app:latest", "Always"),
    ],
)
def test_a_name_without_a_tag_means_the_latest_which_is_always_pulled(text, asked, policy):
    assert (with_tag(text), default_policy(text)) == (asked, policy)

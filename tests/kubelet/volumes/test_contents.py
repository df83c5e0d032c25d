"""The files of volumes that show objects, as values."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.volumes import contents
from podwire.kubelet.volumes.contents import File
from podwire.kubelet.volumes.errors import VolumeError
from podwire.objects import pods
from podwire.objects.containers import FieldRef, ResourceFieldRef
from podwire.objects.volumes import DownwardFile, KeyToPath

NODE = NodeFacts(name="node-1", ips=("10.0.0.1",), allocatable={"cpu": "4", "memory": "8Gi"})


def encoded(text):
    return base64.b64encode(text).decode()


def test_a_config_map_holds_texts_and_bytes():
    object_ = {"data": {"a": "ü"}, "binaryData": {"b": encoded(b"\0\xff")}}
    assert contents.config_map_data(object_) == {"a": "ü".encode(), "b": b"\0\xff"}
    assert contents.config_map_data(None) == contents.config_map_data({"data": None}) == {}


def test_a_secret_is_decoded_and_one_that_is_none_is_refused():
    assert contents.secret_data({"data": {"a": encoded(b"x"), "empty": None}}) == {"a": b"x", "empty": b""}
    with pytest.raises(VolumeError, match="illegal base64 data"):
        contents.secret_data({"data": {"a": "%%%"}})


DATA = {"a": b"1", "b": b"2"}


@pytest.mark.parametrize(
    ("items", "files"),
    [
        pytest.param([], {"a": File(b"1", 0o640), "b": File(b"2", 0o640)}, id="all keys"),
        pytest.param([KeyToPath(key="a", path="x/y")], {"x/y": File(b"1", 0o640)}, id="one key elsewhere"),
        pytest.param([KeyToPath(key="b", path="b", mode=0o400)], {"b": File(b"2", 0o400)}, id="a mode of its own"),
        pytest.param([KeyToPath(key="b", path="b", mode=0)], {"b": File(b"2", 0)}, id="even none"),
    ],
)
def test_a_volume_shows_the_keys_that_it_names(items, files):
    assert contents.selected(DATA, items, 0o640, optional=False, word="config") == files


@pytest.mark.parametrize("word", ["config", "secret"])
def test_a_key_that_is_not_there_is_named(word):
    items = [KeyToPath(key="k", path="k"), KeyToPath(key="a", path="a")]
    with pytest.raises(VolumeError, match=f"references non-existent {word} key: k"):
        contents.selected(DATA, items, 0o644, optional=False, word=word)
    assert set(contents.selected(DATA, items, 0o644, optional=True, word=word)) == {"a"}


POD = pods.read(
    {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"b": "2", "a": 'say "1"'}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1500m"}}}]},
    }
)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        pytest.param(DownwardFile(path="f", field_ref=FieldRef(field_path="metadata.name")), "web", id="name"),
        pytest.param(
            DownwardFile(path="f", field_ref=FieldRef(field_path="metadata.labels")),
            'a="say \\"1\\""\nb="2"',
            id="labels",
        ),
        pytest.param(DownwardFile(path="f", field_ref=FieldRef(field_path="metadata.labels['b']")), "2", id="label"),
        pytest.param(
            DownwardFile(
                path="f", resource_field_ref=ResourceFieldRef(container_name="c", resource="limits.cpu", divisor="1m")
            ),
            "1500",
            id="limit",
        ),
        pytest.param(
            DownwardFile(
                path="f",
                resource_field_ref=ResourceFieldRef(container_name="c", resource="limits.memory", divisor="1Gi"),
            ),
            "8",
            id="what the node has where there is no limit",
        ),
    ],
)
def test_a_pod_reads_facts_about_itself(item, text):
    assert contents.downward(POD, [item], 0o644, NODE) == {"f": File(text.encode(), 0o644)}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        pytest.param(DownwardFile(path="f"), "neither fieldRef nor", id="nothing"),
        pytest.param(
            DownwardFile(path="f", field_ref=FieldRef(field_path="spec.x")), "unsupported fieldPath", id="field"
        ),
        pytest.param(
            DownwardFile(path="f", resource_field_ref=ResourceFieldRef(container_name="z", resource="limits.cpu")),
            "container z not found",
            id="container",
        ),
    ],
)
def test_unknown_fields_are_rejected(item, words):
    with pytest.raises(VolumeError, match=words):
        contents.downward(POD, [item], 0o644, NODE)


@pytest.mark.parametrize(
    ("pod_user", "container_users", "user"),
    [
        pytest.param(None, [None], None, id="nobody says"),
        pytest.param(7, [None, None], 7, id="the pod says"),
        pytest.param(7, [8, 8], 8, id="all containers say the same"),
        pytest.param(7, [None, 8], None, id="they differ"),
        pytest.param(None, [8, None], None, id="one does not say"),
        pytest.param(0, [None], 0, id="root is somebody"),
    ],
)
def test_a_pod_has_a_user_if_all_its_containers_have_the_same(pod_user, container_users, user):
    containers = [
        {"name": f"c{number}", "securityContext": {} if each is None else {"runAsUser": each}}
        for number, each in enumerate(container_users)
    ]
    security = {} if pod_user is None else {"runAsUser": pod_user}
    given_ = pods.read({"metadata": {"name": "x"}, "spec": {"containers": containers, "securityContext": security}})
    assert contents.sole_user(given_) == user


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "must not be empty"),
        ("/etc/passwd", "must be relative path"),
        ("a/../../b", r"must not contain '\.\.'"),
        ("..", r"must not contain '\.\.'"),
        ("..data", r"must not start with '\.\.'"),
        ("..x/y", r"must not start with '\.\.'"),
        (".//..data", r"must not start with '\.\.'"),
        ("./.", "must name a file"),
        ("a\0b", "must not be empty"),
        ("x" * 5000, "longer than 4096"),
    ],
)
def test_a_path_that_leads_out_of_the_volume_is_refused(path, words):
    with pytest.raises(VolumeError, match=words):
        contents.checked(path)


@given(st.text("./ab\0", max_size=12))
def test_a_path_that_is_taken_stays_inside(path):
    try:
        taken = contents.checked(path)
    except VolumeError:
        return
    steps = taken.split("/")
    assert ".." not in steps
    assert "" not in steps
    assert not taken.startswith("..")

"""Plugins without which a pod must not start."""

import pytest

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAnnotation
from podwire.protocols.nri.required import ANNOTATION, MAX_LENGTH, required_for

TOLERATE = "tolerate.example.dev"


def pod(annotations: dict[str, str] | None = None, *, network: bool = True) -> pb.PodSandbox:
    made = pb.PodSandbox(annotations=annotations or {})
    for kind in ("ipc", "uts", *(["network"] if network else [])):
        made.linux.namespaces.add(type=kind)
    return made


@pytest.mark.parametrize(
    ("annotations", "container", "always", "required"),
    [
        pytest.param({}, None, (), (), id="nobody asks"),
        pytest.param({}, None, ("net",), ("net",), id="the host asks"),
        pytest.param({ANNOTATION: '["a","10-b"]'}, None, (), ("a", "10-b"), id="JSON"),
        pytest.param({ANNOTATION: "- a\n- 10-b\n"}, None, (), ("a", "10-b"), id="YAML"),
        pytest.param({ANNOTATION: "[a, a, net]"}, None, ("net",), ("net", "a"), id="each once, the host's first"),
        pytest.param({ANNOTATION: ""}, None, (), (), id="nothing"),
        pytest.param({ANNOTATION: "[a]", f"{ANNOTATION}/pod": "[b]"}, None, (), ("b",), id="of the pod"),
        pytest.param({ANNOTATION: "[a]", f"{ANNOTATION}/pod": "[]"}, None, (), (), id="of the pod, none"),
        pytest.param({f"{ANNOTATION}/container.c": "[a]"}, "c", (), ("a",), id="of the container"),
        pytest.param({f"{ANNOTATION}/container.c": "[a]"}, "d", (), (), id="of another container"),
        pytest.param({f"{ANNOTATION}/container.c": "[a]"}, None, (), (), id="of a container, not of its pod"),
        pytest.param(
            {f"{ANNOTATION}/container.c": "[a]", f"{ANNOTATION}/pod": "[b]"}, "c", ("net",), ("net", "a"),
            id="the most specific one",
        ),
        pytest.param({TOLERATE: "true", ANNOTATION: "[a]"}, None, ("net",), (), id="tolerated"),
        pytest.param({TOLERATE: "0"}, None, ("net",), ("net",), id="not tolerated"),
        pytest.param({TOLERATE: "1", f"{TOLERATE}/pod": "F"}, None, ("net",), ("net",), id="not tolerated by the pod"),
        pytest.param({f"{TOLERATE}/container.c": "T"}, "c", ("net",), (), id="tolerated by the container"),
        pytest.param({f"{TOLERATE}/container.c": "T"}, None, ("net",), ("net",), id="not tolerated by its pod"),
    ],
)  # fmt: skip
def test_host_and_pod_name_required_plugins(annotations, container, always, required):
    assert required_for(pod(annotations), container, always, TOLERATE) == required


def test_a_pod_in_the_nodes_network_requires_nothing():
    assert required_for(pod({ANNOTATION: "[a]"}, network=False), None, ("net",), "") == ()


def test_without_a_name_for_it_no_annotation_tolerates():
    assert required_for(pod({"": "true", "/pod": "true"}), None, ("net",), "") == ("net",)


@pytest.mark.parametrize(
    ("annotations", "named", "reason"),
    [
        pytest.param({ANNOTATION: "a: b"}, ANNOTATION, "is not a list", id="a mapping"),
        pytest.param({ANNOTATION: "plugin"}, ANNOTATION, "is not a list", id="a word"),
        pytest.param({ANNOTATION: "[1]"}, ANNOTATION, "is not a list", id="a number"),
        pytest.param({ANNOTATION: "['']"}, ANNOTATION, "is not a list", id="an empty name"),
        pytest.param({ANNOTATION: "[a"}, ANNOTATION, "is not a list", id="half a list"),
        pytest.param({ANNOTATION: "!!python/name:os.system"}, ANNOTATION, "is not a list", id="a tag"),
        pytest.param({ANNOTATION: "- 2024-13-45"}, ANNOTATION, "is not a list", id="no date"),
        pytest.param({ANNOTATION: "[" * MAX_LENGTH}, ANNOTATION, "is not a list", id="deep"),
        pytest.param({ANNOTATION: "a" * (MAX_LENGTH + 1)}, ANNOTATION, "longer than 4096", id="long"),
        pytest.param({f"{ANNOTATION}/pod": "1"}, f"{ANNOTATION}/pod", "is not a list", id="of the pod"),
        pytest.param({TOLERATE: "maybe"}, TOLERATE, "'maybe' is neither true nor false", id="neither true nor false"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_named(annotations, named, reason):
    with pytest.raises(BadAnnotation, match=reason) as caught:
        required_for(pod(annotations), None, (), TOLERATE)
    assert caught.value.annotation == named
    assert str(caught.value).startswith(f"invalid annotation {named}: ")

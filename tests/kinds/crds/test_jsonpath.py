import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kinds.crds.jsonpath import BadPath, compile_path

OBJ = {
    "metadata": {"annotations": {"a.b/c": "x"}},
    "spec": {"replicas": 3, "list": [{"n": "a", "v": 1}, {"n": "b", "v": 2}, {"n": "b", "v": True}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]),
        (".", [OBJ]),
        (".spec.nothing.here", []),
        (".spec.replicas.deeper", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?( @.type == "Nope" )].status', []),
        ('.status.conditions[?(@.type!="Ready")].type', ["Other"]),
        (".spec.list[*].n", ["a", "b", "b"]),
        (".spec.list.*.n", ["a", "b", "b"]),
        (".spec.list[0].n", ["a"]),
        (".spec.list[-1].v", [True]),
        (".spec.list[7].v", []),
        (".spec.list[1:].v", [2, True]),
        (".spec.list[?(@.v>1)].n", ["b"]),
        (".spec.list[?(@.v==true)].n", ["b"]),
        (".spec.list[?(@.n)].v", [1, 2, True]),
        (".metadata.annotations['a.b/c']", ["x"]),
        ('.metadata.annotations["a.b/c"]', ["x"]),
        (r".metadata.annotations.a\.b/c", ["x"]),
    ],
)
def test_a_path_finds_its_values(path, found):
    assert compile_path(path).find(OBJ) == found


@pytest.mark.parametrize(
    "path", ["spec", "", "..a", ".a[", ".a[?(@.b=~x)]", ".a['x','y']", ".a]", ".a b", ".a[?(@.b==)]", "." + "a" * 2000]
)
def test_paths_outside_the_subset_are_rejected(path):
    with pytest.raises(BadPath):
        compile_path(path)


@given(st.text(alphabet=".[]?()@*'\"=<>ab1:-\\ ", max_size=30))
def test_any_text_compiles_or_is_rejected(text):
    try:
        path = compile_path(f".{text}")
    except BadPath:
        return
    assert isinstance(path.find(OBJ), list)

import pytest

from podwire.kinds.crds.columns import columns_of
from podwire.objects.times import rfc3339

NOW = 1_700_000_000.0
OBJ = {
    "metadata": {"name": "x", "creationTimestamp": rfc3339(NOW - 80)},
    "spec": {"cronSpec": "* * * * *", "replicas": 3, "list": [{"n": "a"}, {"n": "b"}], "on": True, "share": 0.5},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def test_columns_are_the_name_and_those_of_the_definition(cron_tab):
    columns = columns_of(cron_tab["spec"]["versions"][0])
    assert [(definition["name"], definition["type"], definition["priority"]) for definition in columns.definitions] == [
        ("Name", "string", 0),
        ("Spec", "string", 0),
        ("Replicas", "integer", 0),
        ("Ready", "string", 1),
        ("Age", "date", 0),
    ]
    assert columns.definitions[0]["format"] == "name"
    assert columns.cells(OBJ, NOW) == ["x", "* * * * *", 3, "True", "80s"]


def test_without_columns_there_is_the_age():
    columns = columns_of({"name": "v1"})
    assert [definition["name"] for definition in columns.definitions] == ["Name", "Age"]
    assert columns.cells(OBJ, NOW) == ["x", "80s"]


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        pytest.param("integer", ".spec.replicas", 3, id="an integer stays one"),
        pytest.param("integer", ".spec.cronSpec", None, id="text is not an integer"),
        pytest.param("integer", ".spec.on", None, id="a boolean is not an integer"),
        pytest.param("number", ".spec.share", 0.5, id="number"),
        pytest.param("boolean", ".spec.on", True, id="boolean"),
        pytest.param("string", ".spec.replicas", "3", id="a number as text"),
        pytest.param("string", ".spec.on", "true", id="a boolean as text"),
        pytest.param("string", ".spec.list[*].n", "a b", id="several values"),
        pytest.param("string", ".spec.list[0]", '{"n":"a"}', id="an object as text"),
        pytest.param("string", ".spec.nothing", None, id="nothing"),
        pytest.param("date", ".spec.cronSpec", "<invalid>", id="text is not a date"),
        pytest.param("date", ".spec.replicas", None, id="a number is not a date"),
    ],
)
def test_cells_are_of_their_columns_type(kind, path, cell):
    columns = columns_of({"additionalPrinterColumns": [{"name": "c", "type": kind, "jsonPath": path}]})
    assert columns.cells(OBJ, NOW) == ["x", cell]

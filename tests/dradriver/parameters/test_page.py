"""The page on parameters tells of every field, and its examples are taken."""

import re
from pathlib import Path

import pytest
import yaml

from podwire.dradriver.parameters.entries import SCOPES
from podwire.dradriver.parameters.forms import Entries, Group
from podwire.dradriver.parameters.reader import Source, read
from podwire.dradriver.parameters.schema import FIELDS, PATHS

PAGE = Path(__file__).parents[3] / "docs/network-parameters.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_it_names_every_field():
    groups = {path for path in PATHS if any(other.startswith(f"{path}.") for other in PATHS)}
    inner = {name for form in FIELDS.values() if isinstance(form, Entries) for name in form.fields}
    assert [path for path in (set(PATHS) - groups) | inner | set(SCOPES) | {"locks"} if f"`{path}`" not in TEXT] == []
    assert all(isinstance(FIELDS[group], Group) for group in groups if "." not in group)


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL), ids=["claim", "class"])
def test_examples_of_the_page_are_valid_parameters(text):
    found = yaml.safe_load(text)
    class_name = found["metadata"]["name"] if found["kind"] == "DeviceClass" else ""
    [config] = found["spec"].get("config") or found["spec"]["devices"]["config"]
    source = Source(where="", class_name=class_name, parameters=config["opaque"]["parameters"])
    assert read(source).said

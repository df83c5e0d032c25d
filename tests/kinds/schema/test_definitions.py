"""The definitions come from the installed package, found without running its code."""

import subprocess
import sys

import pytest

from podwire.kinds.schema.definitions import load
from podwire.kinds.schema.gofields import _EXCEPTIONS


def test_the_package_that_brings_the_definitions_is_not_imported():
    code = "import sys; from podwire.kinds.schema.definitions import load; load(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "kubernetes_validate" not in modules


def test_a_version_is_read_once():
    assert load() is load()


def test_a_version_that_is_not_installed_is_an_error():
    with pytest.raises(FileNotFoundError, match="v0\\.1\\.0"):
        load("0.1.0")


@pytest.mark.parametrize("definition", sorted(_EXCEPTIONS))
def test_every_row_about_go_names_real_properties(definition):
    properties = load().schema(definition).properties or {}
    rules = _EXCEPTIONS[definition]
    named = rules.present | rules.absent | rules.pointers | rules.shown | rules.omitted
    assert named
    assert named <= properties.keys()
    assert all(properties[name].ref for name in rules.present | rules.absent)
    assert not any(properties[name].ref for name in rules.pointers | rules.shown | rules.omitted)

"""Valid identities of a plugin."""

import pytest

from podwire.protocols.nri.names import BadName, PluginId, from_file, plugin_id


@pytest.mark.parametrize("name", ["logger", "my_plugin", "a.b+c-d", "0", "10-logger"])
def test_names_that_a_plugin_may_have(name):
    assert plugin_id("00", name) == PluginId("00", name)


@pytest.mark.parametrize(
    ("index", "name", "why"),
    [
        pytest.param("1", "a", "plugin_idx: '1' is not two digits", id="one digit"),
        pytest.param("100", "a", "plugin_idx: '100' is not two digits", id="three digits"),
        pytest.param("", "a", "plugin_idx: '' is not two digits", id="no index"),
        pytest.param("a1", "a", "plugin_idx: 'a1' is not two digits", id="a letter"),
        pytest.param("-1", "a", "plugin_idx: '-1' is not two digits", id="a sign"),
        pytest.param("01\n", "a", r"plugin_idx: '01\\n' is not two digits", id="a line's end"),
        pytest.param("\u0660\u0661", "a", "is not two digits", id="digits of another script"),
        pytest.param("00", "", "plugin_name: '' has other characters", id="no name"),
        pytest.param("00", "a b", "plugin_name: 'a b' has other characters", id="a space"),
        pytest.param("00", "a/b", "plugin_name: 'a/b' has other characters", id="a slash"),
        pytest.param("00", "a\n", r"plugin_name: 'a\\n' has other characters", id="a name and a line's end"),
        pytest.param("00", "ä", "plugin_name: 'ä' has other characters", id="a letter with dots"),
    ],
)
def test_others_are_refused_with_the_field_and_the_reason(index, name, why):
    with pytest.raises(BadName, match=why):
        plugin_id(index, name)


def test_plugins_are_asked_by_index_then_by_name():
    listed = [plugin_id(*item) for item in (("10", "b"), ("05", "z"), ("10", "a"), ("00", "m"))]
    assert [str(item) for item in sorted(listed)] == ["00-m", "05-z", "10-a", "10-b"]


@pytest.mark.parametrize(
    ("wanted", "meant"), [("logger", True), ("10-logger", True), ("11-logger", False), ("log", False)]
)
def test_a_required_plugin_is_named_with_or_without_its_index(wanted, meant):
    assert PluginId("10", "logger").is_meant_by(wanted) is meant


@pytest.mark.parametrize(
    ("file", "found"), [("10-logger", PluginId("10", "logger")), ("00-a-b.c", PluginId("00", "a-b.c"))]
)
def test_a_pre_installed_plugin_is_known_by_its_file(file, found):
    assert from_file(file) == found


@pytest.mark.parametrize("file", ["logger", "1-logger", "100-logger", "10_logger", "10-", "-logger", "", "10-a b"])
def test_files_with_other_names_are_not_plugins(file):
    with pytest.raises(BadName):
        from_file(file)

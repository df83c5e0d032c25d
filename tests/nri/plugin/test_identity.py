"""A plugin's name and its runtime's socket, from flags and variables."""

from pathlib import Path

import pytest

from podwire.nri.errors import BadStart
from podwire.nri.identity import SOCKET, Identity, identify
from podwire.protocols.nri.names import PluginId

LAUNCHED = {"NRI_PLUGIN_NAME": "tuner", "NRI_PLUGIN_IDX": "42", "NRI_PLUGIN_SOCKET": "3"}


@pytest.mark.parametrize(
    ("environ", "given", "begins"),
    [
        pytest.param({}, {}, Identity(PluginId("50", "own"), SOCKET), id="alone, where runtimes listen"),
        pytest.param({}, {"socket": "/x"}, Identity(PluginId("50", "own"), Path("/x")), id="alone, at a path"),
        pytest.param(LAUNCHED, {}, Identity(PluginId("42", "tuner"), 3), id="started by the runtime"),
        pytest.param(
            LAUNCHED,
            {"socket": "/x"},
            Identity(PluginId("42", "tuner"), Path("/x")),
            id="a path goes before a descriptor",
        ),
        pytest.param(
            {"NRI_SOCKET": "/v"}, {}, Identity(PluginId("50", "own"), Path("/v")), id="a path in the environment"
        ),
        pytest.param(
            {"NRI_SOCKET": "/v"}, {"socket": "/x"}, Identity(PluginId("50", "own"), Path("/x")), id="a flag before that"
        ),
        pytest.param({"NRI_PLUGIN_IDX": "07"}, {}, Identity(PluginId("07", "own"), SOCKET), id="an index alone"),
    ],
)
def test_flags_and_environment_identify_a_plugin(environ, given, begins):
    assert identify(environ, index="50", name="own", **given) == begins


@pytest.mark.parametrize(
    ("environ", "index", "name", "words"),
    [
        pytest.param({}, "5", "own", "plugin_idx: '5' is not two digits", id="one digit"),
        pytest.param({}, "50", "", "plugin_name: ''", id="no name"),
        pytest.param({"NRI_PLUGIN_IDX": "x1"}, "50", "own", "plugin_idx: 'x1'", id="a variable that is wrong"),
        pytest.param(
            {**LAUNCHED, "NRI_PLUGIN_SOCKET": "three"}, "50", "own", "NRI_PLUGIN_SOCKET: 'three'", id="a word"
        ),
        pytest.param({**LAUNCHED, "NRI_PLUGIN_SOCKET": "-1"}, "50", "own", "NRI_PLUGIN_SOCKET: '-1'", id="below zero"),
    ],
)
def test_invalid_identities_are_named(environ, index, name, words):
    with pytest.raises(BadStart, match=words):
        identify(environ, index=index, name=name)

"""Configurations as administrators write them, requests as plugins get them."""

import json

import pytest

from podwire.protocols.cni.config import (
    lowered,
    parse_list,
    parse_plugin,
    parse_single,
    plugin_config,
    request,
    with_plugins,
)
from podwire.protocols.cni.errors import CniError

LIST = {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge"}, {"type": "portmap"}]}


def parsed(**keys):
    document = {key: value for key, value in (LIST | keys).items() if value is not ...}
    return parse_list(json.dumps(document).encode())


def test_a_list_is_its_name_version_and_plugins():
    network = parsed(disableCheck=True, disableGC="true", unknown=7)
    assert (network.name, network.version, network.disable_check, network.disable_gc) == ("net", "1.0.0", True, True)
    assert [plugin["type"] for plugin in network.plugins] == ["bridge", "portmap"]


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        ({}, "1.0.0"),
        ({"cniVersion": ...}, "0.1.0"),
        ({"cniVersion": ""}, "0.1.0"),
        ({"cniVersions": ["0.4.0", "1.1.0", "9.0.0"]}, "1.1.0"),
        ({"cniVersion": ..., "cniVersions": ["0.4.0"]}, "0.4.0"),
        ({"cniVersion": "2.0.0", "cniVersions": ["0.3.1", "0.10.0"]}, "0.3.1"),
    ],
)
def test_the_highest_version_that_both_know_is_used(keys, version):
    assert parsed(**keys).version == version


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"name": ...}, 7, "name: missing", id="no name"),
        pytest.param({"name": "../x"}, 7, "name", id="a path for a name"),
        pytest.param({"name": 5}, 6, "name", id="a number for a name"),
        pytest.param({"name": "n" * 171}, 7, "longer than 170 characters", id="a long name"),
        pytest.param({"cniVersion": "9.9.9"}, 1, "9.9.9", id="a version of the future"),
        pytest.param({"cniVersion": "one"}, 6, "one", id="not a version"),
        pytest.param({"cniVersions": ["1.0"]}, 6, "1.0", id="no version among several"),
        pytest.param({"plugins": []}, 7, "plugins: empty", id="no plugins"),
        pytest.param({"plugins": {}}, 6, "not a list", id="no list"),
        pytest.param({"plugins": ["bridge"]}, 6, "not an object", id="names for plugins"),
        pytest.param({"plugins": [{}]}, 7, r"plugins\[0\].type: missing", id="no type"),
        pytest.param({"plugins": [{"type": "../../bin/sh"}]}, 7, "bare name", id="a path for a type"),
        pytest.param(
            {"plugins": [{"type": "b", "capabilities": {"mac": "yes"}}]}, 6, "capabilities", id="capabilities"
        ),
        pytest.param({"disableCheck": "maybe"}, 6, "disableCheck", id="no boolean"),
        pytest.param({"plugins": ..., "loadOnlyInlinedPlugins": True}, 7, "plugins", id="nothing inlined"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused_by_its_key(keys, code, reported):
    with pytest.raises(CniError, match=reported) as caught:
        parsed(**keys)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff", b'{"name": Infinity}', b"[" * 50_000, b"\xef\xbb\xbf{}"]
)
def test_a_value_that_is_not_an_object_is_rejected(data):
    for parse in (parse_list, parse_single, plugin_config):
        with pytest.raises(CniError) as caught:
            parse(data)
        assert caught.value.code == 6


def test_plugins_of_a_folder_come_after_the_inlined_ones():
    more = (parse_plugin(b'{"type": "tuning"}', "x.conf"),)
    assert [plugin["type"] for plugin in with_plugins(parsed(), more).plugins] == ["bridge", "portmap", "tuning"]
    assert with_plugins(parsed(loadOnlyInlinedPlugins=True), more) == parsed(loadOnlyInlinedPlugins=True)
    assert [plugin["type"] for plugin in with_plugins(parsed(plugins=...), more).plugins] == ["tuning"]
    with pytest.raises(CniError, match="no folder"):
        with_plugins(parsed(plugins=...), ())


def test_a_single_plugin_is_a_network_of_its_own():
    network = parse_single(b'{"cniVersion": "0.4.0", "name": "one", "type": "bridge", "mtu": 9000}')
    assert (network.name, network.version, network.plugins[0]["mtu"]) == ("one", "0.4.0", 9000)
    with pytest.raises(CniError, match="conflist"):
        parse_single(json.dumps(LIST).encode())


def test_a_request_has_the_runtimes_values_and_nothing_stale():
    plugin = {
        "type": "x",
        "name": "stale",
        "cniVersion": "0.1.0",
        "prevResult": {"stale": 1},
        "runtimeConfig": {"stale": 1},
        "capabilities": {"ips": True, "mac": False, "aliases": True},
        "own": {"deep": [1]},
    }
    values = {"ips": ["10.0.0.1"], "mac": "02:00:00:00:00:01", "bandwidth": {}}
    assert request(parsed(), plugin, {"ips": []}, values) == {
        "type": "x",
        "name": "net",
        "cniVersion": "1.0.0",
        "own": {"deep": [1]},
        "runtimeConfig": {"ips": ["10.0.0.1"]},
        "prevResult": {"ips": []},
    }
    assert request(parsed(), {"type": "x"}, None, values) == {"type": "x", "name": "net", "cniVersion": "1.0.0"}


def test_a_plugin_reads_its_runtime_configuration_in_any_spelling():
    configuration = {
        "cniVersion": "1.1.0",
        "name": "n",
        "runtimeConfig": {"PortMappings": [{"HostPort": 1, "hostIP": "X"}]},
    }
    config = plugin_config(json.dumps(configuration).encode())
    assert config.runtime == {"portmappings": [{"hostport": 1, "hostip": "X"}]}
    assert config.raw == configuration
    assert lowered([{"A": {"B": 1}}]) == [{"a": {"b": 1}}]


def test_a_broken_previous_result_fails_only_when_it_is_read():
    config = plugin_config(b'{"cniVersion": "1.1.0", "name": "n", "prevResult": 7}')
    with pytest.raises(CniError):
        config.previous()
    assert plugin_config(b'{"name": "n"}').previous() is None

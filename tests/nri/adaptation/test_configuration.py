"""Settings out of a file."""

from pathlib import Path

import pytest

from podwire.nri.adaptation.configuration import load
from podwire.nri.adaptation.settings import PluginSettings, Settings, ValidatorSettings
from podwire.protocols.settings import BadConfig

WHOLE = """
disable: false
socket_path: /run/nri/nri.sock
plugin_path: /opt/plugins
plugin_config_path: /etc/plugins
plugin_registration_timeout: 7s
plugin_request_timeout: 1m30s
plugin_synchronize_timeout: 2.5s
grace: 0s
default_validator:
  enable: true
  reject_sysctl_adjustment: true
  required_plugins: [net, 10-policy]
  tolerate_missing_plugins_annotation: tolerate.example.org
plugins:
  net: {timeout: 500ms, concurrent: true}
  10-policy:
"""


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "nri.yaml"
        path.write_text(text)
        return path

    return write


def test_every_setting_can_be_configured(written):
    assert load(written(WHOLE)) == Settings(
        socket=Path("/run/nri/nri.sock"),
        plugin_path=Path("/opt/plugins"),
        plugin_config_path=Path("/etc/plugins"),
        registration_timeout=7.0,
        request_timeout=90.0,
        synchronize_timeout=2.5,
        grace=0.0,
        required_plugins=("net", "10-policy"),
        tolerate_missing_plugins_annotation="tolerate.example.org",
        plugins={"net": PluginSettings(timeout=0.5, concurrent=True), "10-policy": PluginSettings()},
        validator=ValidatorSettings(enable=True, reject_sysctl_adjustment=True),
    )


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n"])
def test_defaults_are_those_of_containerd(written, text):
    assert load(written(text)) == Settings(
        socket=Path("/var/run/nri/nri.sock"),
        plugin_path=Path("/opt/nri/plugins"),
        plugin_config_path=Path("/etc/nri/conf.d"),
        registration_timeout=5.0,
        request_timeout=2.0,
        synchronize_timeout=10.0,
        grace=10.0,
    )


def test_connections_can_be_kept_out(written):
    assert load(written("disable_connections: true\nsocket_path: /run/nri.sock")).socket is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("required_plugin: [a]", "required_plugin: is not a setting", id="unknown"),
        pytest.param("default_validator: {enabled: true}", "default_validator.enabled: is not a setting", id="below"),
        pytest.param("plugins: {a: {time: 5s}}", "plugins.a.time: is not a setting", id="of a plugin"),
        pytest.param("[]", "must be a mapping", id="a list"),
        pytest.param("plugins: []", "plugins: must be a mapping", id="no mapping of plugins"),
        pytest.param("plugins: {10: {}}", "plugins: must be a mapping of plugins by name", id="a number as a name"),
        pytest.param("disable: 'yes'", "disable: must be true or false", id="a text as a flag"),
        pytest.param("socket_path: nri.sock", "socket_path: must be an absolute path", id="a relative path"),
        pytest.param("plugin_request_timeout: 2", "plugin_request_timeout: 2 is not a duration", id="a number"),
        pytest.param("plugin_request_timeout: 2 s", "plugin_request_timeout: '2 s' is not a duration", id="a space"),
        pytest.param("plugin_request_timeout: 0s", "plugin_request_timeout: must be greater", id="no time at all"),
        pytest.param("plugins: {a: {timeout: 0ms}}", "plugins.a.timeout: must be greater", id="none for a plugin"),
        pytest.param("default_validator: {required_plugins: net}", "required_plugins: must be a list", id="no list"),
        pytest.param("default_validator: {required_plugins: [1]}", "required_plugins: must be a list", id="numbers"),
        pytest.param(
            "default_validator: {tolerate_missing_plugins_annotation: true}",
            "annotation: must be a string",
            id="a flag",
        ),
        pytest.param("a: [", "is not YAML", id="no YAML"),
        pytest.param("grace: 1s\ngrace: 2s", "grace is there twice", id="a key twice"),
    ],
)
def test_errors_name_the_key(written, text, words):
    with pytest.raises(BadConfig, match=words):
        load(written(text))


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nri.yaml")

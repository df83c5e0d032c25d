"""The folder `deploy` is what podwire prints, and its recipe names what is there."""

import re
from pathlib import Path

import pytest
import yaml

from podwire.cli.main import main

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.mark.parametrize("part", ["cni-plugins", "device-plugin", "network-driver", "nri-network"])
def test_the_manifest_file_equals_the_output_of_the_command(part, capsys):
    assert main(["manifests", part]) == 0
    printed = capsys.readouterr().out
    assert (DEPLOY / f"{part}.yaml").read_text(encoding="utf-8") == printed, (
        f"podwire manifests {part} > deploy/{part}.yaml"
    )


def test_the_readme_names_every_file():
    names = set(re.findall(r"^\| `([\w.-]+)` \|", (DEPLOY / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert names == {path.name for path in DEPLOY.iterdir()} - {"README.md"}


def test_the_readme_names_every_object_of_the_driver():
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    objects = list(yaml.safe_load_all((DEPLOY / "network-driver.yaml").read_text(encoding="utf-8")))
    missing = [
        object_
        for object_ in objects
        if f"`{object_['metadata']['name']}`" not in text or object_["kind"].removesuffix("Binding") not in text
    ]
    assert missing == []


def test_the_recipe_copies_existing_files_and_names_no_host():
    recipe = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", recipe, re.MULTILINE) for word in line.split()]
    assert {"podwire/", "shim/", "pyproject.toml"} <= set(copied)
    assert [item for item in copied if not (ROOT / item).exists()] == []
    images = re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)
    assert [image for image in images if "/" in image] == []


def test_an_invalid_driver_configuration_is_not_printed(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("speed: 10\n")
    assert main(["manifests", "network-driver", "--config", str(file)]) == 1
    captured = capsys.readouterr()
    assert "speed: is not a setting" in captured.err
    assert captured.out == ""
    assert main(["manifests", "network-driver", "--config", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_a_file_of_the_driver_is_handed_on_as_it_is(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("# ours\npools:\n  lab: {subnet: 10.9.0.0/24}\n")
    assert main(["manifests", "network-driver", "--config", str(file)]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    [config] = [object_ for object_ in objects if object_["kind"] == "ConfigMap"]
    assert config["data"]["config.yaml"] == file.read_text()

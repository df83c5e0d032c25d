"""Files of static pods: what becomes of a good one, and how a bad one is reported."""

import os

import pytest

from podwire.kubelet.static.manifests import LARGEST, BadManifest, parse, read_directory
from podwire.linux.errors import UntrustedPath

WEB = b"""
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: c, image: "i:1"}]
"""


def test_a_manifest_is_completed_as_upstreams_kubelet_does():
    pod = parse(WEB, "/m/web.yaml", "n")
    meta = pod["metadata"]
    assert (meta["name"], meta["namespace"], meta["labels"]) == ("web-n", "default", {"app": "web"})
    assert meta["annotations"] == {"kubernetes.io/config.hash": meta["uid"], "kubernetes.io/config.source": "file"}
    assert len(meta["uid"]) == 32
    assert pod["spec"]["nodeName"] == "n"
    assert pod["spec"]["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["status"]["phase"] == "Pending"


def test_json_is_a_manifest_as_well():
    text = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
    assert parse(text, "/m/a.json", "n")["metadata"]["name"] == "a-n"


def test_the_uid_follows_content_file_and_node():
    uids = [
        parse(data, path, node)["metadata"]["uid"]
        for data, path, node in [
            (WEB, "/m/web.yaml", "n"),
            (WEB, "/m/web.yaml", "n"),
            (WEB.replace(b"i:1", b"i:2"), "/m/web.yaml", "n"),
            (WEB, "/m/other.yaml", "n"),
            (WEB, "/m/web.yaml", "m"),
        ]
    ]
    assert uids[0] == uids[1]
    assert len(set(uids)) == 4


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "apiVersion and kind: must be v1 and Pod", id="nothing"),
        pytest.param(b"a: [", "yaml", id="broken yaml"),
        pytest.param(b"{", "", id="broken json"),
        pytest.param(WEB.replace(b"kind: Pod", b"kind: Service"), "must be v1 and Pod", id="another kind"),
        pytest.param(WEB.replace(b"image:", b"imgae:"), 'unknown field "spec.containers[0].imgae"', id="unknown field"),
        pytest.param(WEB.replace(b"name: c", b"name: [c]"), "spec.containers.name of type string", id="wrong type"),
        pytest.param(
            WEB.replace(b"name: c", b"name: C_C"), "spec.containers[0].name: Invalid value", id="invalid container"
        ),
        pytest.param(WEB.replace(b"name: web,", b""), "metadata.name: Required value", id="no name"),
        pytest.param(WEB.replace(b"spec:", b"spec:\n  serviceAccountName: x"), "a ServiceAccount", id="account"),
        pytest.param(
            WEB.replace(b"spec:", b"spec:\n  volumes: [{name: v, secret: {secretName: s}}]"), "Secret s", id="a secret"
        ),
        pytest.param(b"#" * (LARGEST + 1), f"is larger than {LARGEST} bytes", id="too large"),
    ],
)
def test_a_bad_manifest_names_the_field(data, problem):
    with pytest.raises(BadManifest) as raised:
        parse(data, "/m/x.yaml", "n")
    assert problem.lower() in str(raised.value).lower()


def test_a_bad_file_does_not_stop_others(tmp_path):
    (tmp_path / "bad.yaml").write_bytes(b"a: [")
    (tmp_path / "web.yaml").write_bytes(WEB)
    (tmp_path / "web2.yaml").write_bytes(WEB)
    (tmp_path / ".hidden").write_bytes(b"a: [")
    (tmp_path / "directory").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    found = read_directory(tmp_path, "n")
    assert list(found.pods) == [str(tmp_path / "web.yaml")]
    assert found.errors.keys() == {str(tmp_path / name) for name in ("bad.yaml", "web2.yaml", "dangling")}
    assert "default/web-n is in" in found.errors[str(tmp_path / "web2.yaml")]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
def test_files_that_others_can_change_are_refused(tmp_path):
    for name in ("foreign.yaml", "writable.yaml", "target", "web.yaml"):
        (tmp_path / name).write_bytes(WEB)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "link.yaml").symlink_to("target")
    (tmp_path / "writable.yaml").chmod(0o666)
    for name in ("foreign.yaml", "target"):
        os.chown(tmp_path / name, 65534, 65534)
    found = read_directory(tmp_path, "n")
    assert list(found.pods) == [str(tmp_path / "web.yaml")]
    assert {path.rpartition("/")[2]: error.split(tmp_path.name, 1)[1][:40] for path, error in found.errors.items()} == {
        "foreign.yaml": "/foreign.yaml belongs to nobody, who cou",
        "link.yaml": "/target belongs to nobody, who could cha",
        "target": "/target belongs to nobody, who could cha",
        "writable.yaml": "/writable.yaml is writable by others tha",
    }


def test_a_directory_that_others_write_to_is_refused(tmp_path):
    (tmp_path / "web.yaml").write_bytes(WEB)
    tmp_path.chmod(0o777)
    with pytest.raises(UntrustedPath, match="is writable by others than its owner"):
        read_directory(tmp_path, "n")

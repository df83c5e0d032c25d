"""Ids of pods with a user namespace of their own."""

import json
import shutil

import pytest

from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.pods.user_ids import UserIds


def test_every_pod_has_ids_of_its_own_and_keeps_them(tmp_path):
    ids = UserIds(tmp_path)
    assert [ids.first(uid) for uid in ("a", "b", "c")] == [65536, 131072, 196608]
    assert UserIds(tmp_path).first("b") == 131072
    content = json.loads((tmp_path / "a/userns").read_text())
    mapping = [{"hostId": 65536, "containerId": 0, "length": 65536}]
    assert content == {"uidMappings": mapping, "gidMappings": mapping}


def test_ids_of_a_removed_pod_are_free_again(tmp_path):
    ids = UserIds(tmp_path)
    for uid in ("a", "b", "c"):
        ids.first(uid)
    shutil.rmtree(tmp_path / "b")
    assert [ids.first(uid) for uid in ("d", "e")] == [131072, 262144]


@pytest.mark.parametrize("content", ["", "{}", '{"uidMappings": [], "gidMappings": []}', "[" * 10_000])
def test_damaged_ids_are_an_error_and_are_never_given_again(tmp_path, content):
    ids = UserIds(tmp_path)
    ids.first("a")
    (tmp_path / "a/userns").write_text(content)
    for uid in ("a", "b"):
        with pytest.raises(ConfigError, match="a/userns"):
            ids.first(uid)

"""Ids of pods with a user namespace of their own."""

import json
import shutil

import pytest

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
def test_damaged_ids_are_recovered_from_the_runtime_and_never_given_to_another_pod(tmp_path, content):
    problems = []
    ids = UserIds(tmp_path, {"a": 65536}.get, problems.append)
    ids.first("a")
    (tmp_path / "a/userns").write_text(content)
    assert ids.first("b") == 131072
    assert ids.first("a") == 65536
    assert [problem.path for problem in problems] == [str(tmp_path / "a/userns")]


@pytest.mark.parametrize("content", ["", "nonsense"])
def test_damaged_ids_of_a_pod_that_the_runtime_does_not_have_are_free(tmp_path, content):
    ids = UserIds(tmp_path)
    ids.first("a")
    (tmp_path / "a/userns").write_text(content)
    assert ids.first("b") == 65536
    assert ids.first("a") == 131072


def test_something_else_in_place_of_the_file_is_damage_too(tmp_path):
    (tmp_path / "a/userns").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/userns").symlink_to("/dev/zero")
    problems = []
    assert UserIds(tmp_path, report=problems.append).first("c") == 65536
    assert len(problems) == 2

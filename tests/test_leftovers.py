import hashlib
import json

import pytest

from tests import leftovers


@pytest.fixture
def slots(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "SLOTS", tmp_path)

    def claim(number: int, prefix: str) -> str:
        (tmp_path / str(number)).write_text(json.dumps({"prefix": prefix, "netns": "4026531840"}))
        return "podwire" if prefix == "/" else f"podwire-{hashlib.sha256(prefix.encode()).hexdigest()[:12]}"

    return claim


def test_slots_of_other_clusters_are_not_leftovers(slots, tmp_path):
    slots(0, "/")
    slots(1, "/srv/podwire")
    slots(2, "/tmp/no-such-directory")
    assert [ours for _, _, ours in leftovers.slots()] == [False, False, False]
    assert not [file for file in leftovers.files() if file.startswith(f"{tmp_path}/")]


def test_a_slot_whose_prefix_is_a_directory_in_tmp_is_a_leftover(slots, tmp_path):
    (tmp_path / "prefix").mkdir()
    slots(3, str(tmp_path / "prefix"))
    assert str(tmp_path / "3") in list(leftovers.files())


def test_a_damaged_slot_is_passed_over(slots, tmp_path):
    (tmp_path / "4").write_text("not JSON")
    assert list(leftovers.slots()) == []

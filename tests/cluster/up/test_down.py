import os

import pytest

from podwire.cluster.up.down import _remove_tree, down
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slot_claims import SlotClaims


@pytest.fixture
def claims(tmp_path):
    return SlotClaims(tmp_path / "machine/slots")


def test_where_nothing_is_nothing_is_removed(tmp_path, claims):
    assert down(Layout(tmp_path / "prefix"), claims) is False
    assert not (tmp_path / "prefix").exists()


def test_state_of_standalone_programs_is_not_removed(tmp_path, claims):
    layout = Layout(tmp_path)
    kept = [layout.state / "apiserver/store/db", layout.state / "images/x", layout.run / "cri.sock"]
    for entry in kept:
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.touch()
    assert down(layout, claims) is False
    assert all(item.exists() for item in kept)


def test_a_tree_deeper_than_a_recursion_is_removed(tmp_path):
    """A container built it in its volume or its root file system."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    _remove_tree(Layout(tmp_path), tmp_path / "d")
    assert list(tmp_path.iterdir()) == []

"""Overlays of few and of many layers, on the kernel."""

import pytest

from podwire.linux import errors
from podwire.linux.fs import overlay
from podwire.linux.fs.overlay import mount_overlay, mount_relative, supports_single_layers


def layers(root, count, name="layer-{}"):
    """Directories, each with a file of its own and one that all have."""
    made = []
    for number in range(count):
        made.append(root / name.format(number))
        made[-1].mkdir(parents=True)
        (made[-1] / f"own-{number}").touch()
        (made[-1] / "common").write_text(str(number))
    return made


@pytest.fixture
def places(tmp_path):
    found = {name: tmp_path / name for name in ("upper", "work", "merged")}
    for item in found.values():
        item.mkdir()
    return found


@pytest.fixture(params=["layer by layer", "by their common directory"])
def way(request, monkeypatch):
    """As newer kernels take layers, and as older ones do."""
    if request.param == "layer by layer":
        if not supports_single_layers():
            pytest.skip("this kernel has no lowerdir+")
    else:
        monkeypatch.setattr(overlay, "supports_single_layers", lambda: False)


def test_the_topmost_layer_wins_and_writes_go_to_the_upper_one(kernel, tmp_path, places, way):
    lower = layers(tmp_path, 3)
    mount_overlay(places["merged"], lower, upper=places["upper"], work=places["work"])
    assert sorted(path.name for path in places["merged"].iterdir()) == ["common", "own-0", "own-1", "own-2"]
    assert (places["merged"] / "common").read_text() == "0"
    (places["merged"] / "new").touch()
    assert (places["upper"] / "new").exists()
    (found,) = [mount for mount in kernel.mounts.list() if mount.target == str(places["merged"])]
    assert found.kind == "overlay"


def test_without_an_upper_layer_nothing_is_written(kernel, tmp_path, places, way):
    mount_overlay(places["merged"], layers(tmp_path, 2))
    with pytest.raises(OSError, match="Read-only"):
        (places["merged"] / "new").touch()


def test_options_are_handed_on(kernel, tmp_path, places, way):
    where = places["merged"]
    mount_overlay(where, layers(tmp_path, 1), upper=places["upper"], work=places["work"], options=["volatile"])
    (found,) = [mount for mount in kernel.mounts.list() if mount.target == str(where)]
    assert {"volatile", "fsync=volatile"} & set(found.super_options)


def test_hundred_layers_fit(kernel, tmp_path, places, way):
    root = tmp_path / ("long-" * 20)
    lower = layers(root, 100)
    assert sum(len(str(item)) for item in lower) > 4096
    mount_overlay(places["merged"], lower, upper=places["upper"], work=places["work"])
    assert len(list(places["merged"].iterdir())) == 101


def test_a_path_longer_than_a_string_of_the_kernel_fits(kernel, tmp_path, places):
    root = tmp_path / ("x" * 200) / ("y" * 200)
    lower = layers(root, 2)
    mount_overlay(places["merged"], lower, upper=places["upper"], work=places["work"])
    assert (places["merged"] / "own-1").exists()


def test_special_characters_in_paths_are_escaped(kernel, tmp_path, places, way):
    lower = layers(tmp_path / "a:b,c\\d e", 2, "l:{},x")
    upper, work = tmp_path / "u:p,p\\e", tmp_path / "w:o,r\\k"
    upper.mkdir()
    work.mkdir()
    mount_overlay(places["merged"], lower, upper=upper, work=work)
    assert (places["merged"] / "own-1").exists()
    (places["merged"] / "new").touch()
    assert (upper / "new").exists()


def test_a_layer_that_is_not_there_is_missing(kernel, tmp_path, places, way):
    with pytest.raises(errors.NoSuchPath, match=r"mount an overlay of 2 layers|mount overlay"):
        mount_overlay(places["merged"], [*layers(tmp_path, 1), tmp_path / "nowhere"])
    assert not kernel.mounts.is_mounted(places["merged"])


def test_a_target_that_is_not_there_is_missing(kernel, tmp_path, way):
    with pytest.raises(errors.NoSuchPath):
        mount_overlay(tmp_path / "nowhere", layers(tmp_path, 2))


def test_error_has_the_kernels_message(kernel, tmp_path, places):
    if not supports_single_layers():
        pytest.skip("this kernel has no lowerdir+")
    with pytest.raises(errors.LinuxError, match=r"(?i)unknown parameter|nonsense"):
        mount_overlay(places["merged"], layers(tmp_path, 1), options=["nonsense=1"])


def test_options_longer_than_a_page_are_refused(kernel, tmp_path, places):
    lower = layers(tmp_path, 60, "x" * 100 + "{}")
    with pytest.raises(errors.Refused, match="one page of options"):
        mount_relative(str(places["merged"]), [str(item) for item in lower], {}, ())

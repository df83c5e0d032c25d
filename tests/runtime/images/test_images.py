"""The images of a machine, as CRI asks for them and as containers hold them."""

import contextlib
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from podwire.runtime.images import Images
from podwire.runtime.images.errors import AmbiguousImage, BadReference, ImageInUse, NoSuchImage
from podwire.runtime.images.limits import Limits

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners")


@pytest.fixture
def take(images, oci, tmp_path):
    """Takes in an image of these layers under this name."""

    def taken(name: str, *layers: str, into: Images = images, **settings):
        made = oci.Made(*(oci.tar_of(oci.entry(layer, b"x" * 5000)) for layer in layers), name=name, **settings)
        path = oci.write_directory(tmp_path / f"{name.replace('/', '_')}-{'-'.join(layers)}", made.files())
        return into.import_archive(path)[0]

    return taken


def layer_count(images: Images) -> int:
    return len(list((images.fs_info().mountpoint / "snapshots").iterdir()))


def blob_count(images: Images) -> int:
    return len(list((images.fs_info().mountpoint / "blobs" / "sha256").iterdir()))


def test_an_image_is_found_by_name_digest_id_and_the_beginning_of_its_id(images, take):
    image = take("busybox", "a")
    hexadecimal = image.id.removeprefix("sha256:")
    asked = [
        "busybox",
        "busybox:latest",
        "docker.io/library/busybox:latest",
        image.digests[0],
        f"busybox:other@{image.digests[0].partition('@')[2]}",
        image.id,
        hexadecimal,
        hexadecimal[:13],
        f"sha256:{hexadecimal[:6]}",
    ]
    assert [images.status(item) for item in asked] == [image] * len(asked)


@pytest.mark.parametrize(
    "reference",
    ["", "other", "busybox:1", "a" * 64, "sha256:" + "a" * 64, "../../etc", "UPPER", "abc", "sha256:", "x\0y", "é" * 9],
)
def test_an_unknown_image_is_not_found_and_removing_it_changes_nothing(images, take, reference):
    image = take("busybox", "a")
    assert images.status(reference) is None
    assert images.remove(reference) is False
    assert images.list() == [image]


def test_the_beginning_of_two_ids_is_ambiguous(take, tmp_path):
    for number in range(3):
        take(f"image{number}", f"file{number}")
    images = Images(tmp_path / "images", limits=Limits(shortest_id=0))
    with contextlib.closing(images), pytest.raises(AmbiguousImage):
        images.status("sha256:")


def test_a_name_that_looks_like_the_beginning_of_an_id_is_a_name(images, take):
    first = take("one", "a")
    second = take(first.id.removeprefix("sha256:")[:12], "b")
    assert images.status(first.id[7:19]) == second


def test_images_are_listed_by_the_filter(images, take):
    one, two, other = take("app:1", "a"), take("app:2", "b"), take("example.test/app:1", "c")
    assert {image.id for image in images.list()} == {one.id, two.id, other.id}
    assert {image.id for image in images.list("app")} == {one.id, two.id}
    assert images.list("app:2") == [two]
    assert images.list(other.id) == [other]
    assert images.list("nothing") == []


def test_one_image_under_two_names_goes_with_either(images, oci, tmp_path, take):
    take("one", "a")
    image = take("two", "a")
    assert image.names == ("docker.io/library/one:latest", "docker.io/library/two:latest")
    assert len(images.list()) == 1
    assert images.remove("one") is True
    assert images.list() == []
    assert images.status("two") is None
    assert (layer_count(images), blob_count(images)) == (0, 0)


def test_removing_an_image_leaves_the_layers_that_others_have(images, take, merged):
    take("one", "shared", "mine")
    other = take("two", "shared", "theirs")
    assert layer_count(images) == 3
    images.remove("one")
    assert layer_count(images) == 2
    assert merged(images.rootfs_layers(other), "ls") == "shared\ntheirs\n"


def test_an_image_that_a_container_runs_from_stays(images, take):
    image = take("one", "a")
    writable = images.prepare("c1", image)
    (writable.upper / "written").write_text("x")
    with pytest.raises(ImageInUse, match="c1"):
        images.remove("one")
    assert images.status("one") == image
    assert images.prepare("c1", image) == writable
    images.release("c1")
    images.release("c1")
    assert not writable.upper.exists()
    assert images.remove("one")


def test_an_image_that_a_container_mounts_as_a_volume_stays_with_its_layers(images, take, merged):
    image, volume = take("one", "a"), take("two", "b")
    images.prepare("c1", image, [volume])
    with pytest.raises(ImageInUse, match="c1"):
        images.remove("two")
    assert merged(images.rootfs_layers(volume), "ls") == "b\n"
    images.release("c1")
    assert images.remove("two")


def test_an_image_in_use_is_not_removed(tmp_path, take):
    used: list[str] = []
    images = Images(tmp_path / "other", in_use=lambda: used)
    image = take("one", "a", into=images)
    used.append(image.id)
    with pytest.raises(ImageInUse):
        images.remove(image.id)
    used.clear()
    assert images.remove(image.id)
    images.close()


def test_a_container_cannot_be_prepared_on_an_image_that_is_gone(images, take):
    image = take("one", "a")
    images.remove("one")
    with pytest.raises(NoSuchImage):
        images.prepare("c1", image)


def test_layers_are_found_by_id_alone(images, take):
    image = take("one", "a")
    assert images.layers_of(image.id) == images.rootfs_layers(image)
    images.remove("one")
    with pytest.raises(NoSuchImage, match=image.id):
        images.layers_of(image.id)


@pytest.mark.parametrize("container", ["", ".", "..", "../x", "a/b", "-a", "x" * 129, "a\0", "a\n", "é"])
def test_a_container_s_id_is_a_plain_name(images, take, container):
    image = take("one", "a")
    for call in (lambda: images.prepare(container, image), lambda: images.release(container)):
        with pytest.raises(BadReference):
            call()


def test_a_container_sees_the_root_as_the_image_has_it_and_writes_to_its_own(images, oci, tmp_path, merged):
    layer = oci.tar_of(oci.folder(".", 0o711, uid=5, gid=6), oci.entry("f", b"x"))
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", oci.Made(layer).files()))
    writable = images.prepare("c1", image)
    said = merged(images.rootfs_layers(image), "stat -c '%a %u %g' .; rm f; echo y > g", writable)
    assert said == "711 5 6\n"
    assert {path.name for path in writable.upper.iterdir()} == {"f", "g"}
    assert (images.rootfs_layers(image)[0] / "f").exists()


def test_a_writable_layer_of_any_depth_is_removed(images, take):
    writable = images.prepare("c1", take("one", "a"))
    here = os.open(writable.upper, os.O_RDONLY)
    for number in range(1500):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
        if number % 100 == 0:
            os.symlink("/etc", "link", dir_fd=here)
            os.mkfifo("fifo", dir_fd=here)
    os.close(here)
    images.release("c1")
    assert list((images.fs_info().mountpoint / "staging").iterdir()) == []
    assert list((images.fs_info().mountpoint / "containers").iterdir()) == []
    assert Path("/etc/passwd").exists()


def test_a_root_that_hides_all_below_is_the_last_of_the_layers(images, oci, tmp_path, merged):
    layers = [
        oci.tar_of(oci.entry("old")),
        oci.tar_of(oci.entry(".wh..wh..opq"), oci.entry("new")),
        oci.tar_of(oci.entry("top")),
    ]
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", oci.Made(*layers).files()))
    assert len(images.rootfs_layers(image)) == 2
    assert merged(images.rootfs_layers(image), "ls") == "new\ntop\n"


def test_images_that_no_registry_has_and_named_ones_are_pinned(tmp_path, take):
    images = Images(tmp_path / "other", pinned=["one:latest"])
    for name, layer in (("one", "a"), ("two", "b")):
        imported = take(name, layer, into=images)
        assert imported.pinned
        images._records.name(f"docker.io/library/{name}:latest", imported.id, pulled=True)  # as a pull names it
    assert images.status("one").pinned
    assert not images.status("two").pinned
    images.close()


def test_fs_info_reports_the_space_that_images_take(images, take):
    empty = images.fs_info()
    assert (empty.used_bytes, empty.inodes_used) == (0, 0)
    one = take("one", "shared", "a")
    two = take("two", "shared", "b")
    info = images.fs_info()
    assert info.used_bytes == sum(path.stat().st_size for path in info.mountpoint.glob("blobs/sha256/*")) + 3 * 12288
    assert info.inodes_used == 3 * 2 + 4
    assert info.used_bytes < one.size + two.size
    images.remove("one")
    images.remove("two")
    assert images.fs_info() == empty


def test_another_process_s_changes_are_seen_at_once(images, take):
    other = Images(images.fs_info().mountpoint)
    image = take("one", "a", into=other)
    assert images.list() == [image]
    images.remove("one")
    assert other.status("one") is None
    other.close()


def test_other_users_cannot_read_the_store(images):
    assert images.fs_info().mountpoint.stat().st_mode & 0o777 == 0o700


# Broken records


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x01
    path.write_bytes(data)


BROKEN = {
    "a record": lambda root, image: root / "records" / f"{image.id[7:]}.json",
    "a config": lambda root, image: root / "blobs" / "sha256" / image.id[7:],
    "a layer's facts": lambda root, image: root / "snapshots" / image.layers[1][7:] / "layer.json",
}


@pytest.mark.parametrize(
    "how", [damage, Path.unlink, lambda path: path.write_bytes(b"")], ids=["flip", "gone", "empty"]
)
@pytest.mark.parametrize("what", BROKEN)
def test_a_damaged_file_affects_one_image_and_is_repaired_by_import(images, take, what, how):
    root = images.fs_info().mountpoint
    good, bad = take("good", "shared", "a"), take("bad", "shared", "b")
    how(BROKEN[what](root, bad))
    images.close()
    reopened = Images(root)
    assert [item.names for item in reopened.list()] == [good.names]
    assert reopened.status("good") == good
    assert reopened.status("bad") is None
    if not (what == "a record" and how is Path.unlink):  # then it is not there any more
        assert reopened.problems()
    assert all(layer.is_dir() for layer in reopened.rootfs_layers(good))
    assert take("bad", "shared", "b", into=reopened) == bad
    assert reopened.problems() == []
    reopened.close()


def test_a_broken_image_can_be_removed(images, take):
    image = take("bad", "a")
    damage(images.fs_info().mountpoint / "records" / f"{image.id[7:]}.json")
    assert images.status(image.id) is None
    assert images.remove(image.id) is True
    assert images.problems() == []
    assert (layer_count(images), blob_count(images)) == (0, 0)


def test_a_broken_name_is_named_and_only_it_is_lost(images, take):
    root = images.fs_info().mountpoint
    image = take("one", "a")
    for path in (root / "references").iterdir():
        if b"@" not in path.read_bytes():
            path.write_bytes(b"{")
    assert images.status("one") is None
    assert images.status(image.id).digests == image.digests
    assert len(images.problems()) == 1


def test_layers_of_a_container_stay_when_its_image_record_is_damaged(images, take):
    root = images.fs_info().mountpoint
    image = take("one", "a")
    images.prepare("c1", image)
    (root / "records" / f"{image.id[7:]}.json").write_bytes(b"broken")
    images.close()
    reopened = Images(root)
    assert all(layer.is_dir() for layer in reopened.rootfs_layers(image))
    reopened.release("c1")
    reopened.close()
    reopened = Images(root)
    assert layer_count(reopened) == 0
    reopened.close()


def test_nothing_is_swept_while_a_container_hold_is_damaged(images, take):
    root = images.fs_info().mountpoint
    image = take("one", "a")
    writable = images.prepare("c1", image)
    (writable.upper.parent / "image.json").write_bytes(b"broken")
    shutil.rmtree(root / "records")
    images.close()
    reopened = Images(root)
    assert layer_count(reopened) == 1
    assert len(reopened.problems()) == 1
    reopened.close()


def test_plain_json_files_of_version_0_1_0_are_read(images, take):
    """Records and references had no envelope."""
    root = images.fs_info().mountpoint
    image = take("one", "a")
    for path in [*(root / "records").iterdir(), *(root / "references").iterdir()]:
        path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes())["record"]))
    images.close()
    reopened = Images(root)
    assert (reopened.status("one"), reopened.problems()) == (image, [])
    assert take("one", "a", into=reopened) == image
    assert reopened.remove("one")
    reopened.close()

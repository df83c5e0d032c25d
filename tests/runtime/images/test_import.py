"""Archives are taken in whole, in any of their forms, or refused with nothing left behind."""

import gzip
import hashlib
import json
import os
import re
import tarfile
from pathlib import Path

import pytest

from podwire.runtime.images import BadImage, Images, Limits
from podwire.runtime.images.documents import chain_ids
from podwire.runtime.images.errors import BadReference, OverLimit
from podwire.runtime.images.platforms import Machine, Platform

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners")


def traces(images: Images) -> list[str]:
    """Everything in the store but its own folders."""
    root = images.fs_info().mountpoint
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.name != "lock" and path.parent != root
    )


@pytest.fixture
def two_layers(oci):
    low = oci.tar_of(oci.entry("etc/motd", b"low"), oci.entry("gone", b"x"))
    high = oci.tar_of(oci.entry("etc/motd", b"high"), oci.entry(".wh.gone"))
    return oci.Made(low, high, User="1000:1000", Env=["A=1", "B=x=y"], Entrypoint=["/run"], Cmd=None, Labels={"l": "v"})


FORMS = {
    "an OCI layout": lambda oci, made, path: oci.write_directory(path, made.files()),
    "an OCI layout in a tar": lambda oci, made, path: oci.write_tar(path, made.files()),
    "an OCI layout in a packed tar": lambda oci, made, path: oci.write_tar(path, made.files(), packed=True),
    "docker save": lambda oci, made, path: oci.write_tar(path, made.docker_files()),
    "docker save, packed": lambda oci, made, path: oci.write_tar(path, made.docker_files(), packed=True),
    "docker save of today": lambda oci, made, path: oci.write_tar(path, {**made.docker_files(), **made.files()}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_image(images, oci, two_layers, tmp_path, merged, form):
    [image] = images.import_archive(FORMS[form](oci, two_layers, tmp_path / "archive"))
    assert image.id == oci.digest(two_layers.config_blob)
    assert image.names == ("example.test/made:1",)
    assert [digest.partition("@")[0] for digest in image.digests] == ["example.test/made"]
    assert (image.uid, image.username, image.config.env, image.config.cmd) == (1000, "", ("A=1", "B=x=y"), ())
    assert (image.config.entrypoint, image.config.labels) == (("/run",), (("l", "v"),))
    assert image.size > 8192
    assert merged(images.rootfs_layers(image), "ls -A; cat etc/motd") == "etc\nhigh"
    assert images.status("example.test/made:1") == image
    assert images.problems() == []
    assert not any(trace.startswith("staging") for trace in traces(images))


def test_the_digest_of_a_layout_is_its_manifests(images, oci, two_layers, tmp_path):
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", two_layers.files()))
    assert image.digests == (f"example.test/made@{oci.digest(two_layers.manifest_blob)}",)
    assert images.status(image.digests[0]) == image


def test_chain_ids_are_those_of_the_specification():
    low, high = "sha256:" + "a" * 64, "sha256:" + "b" * 64
    assert chain_ids([low, high]) == [low, "sha256:" + hashlib.sha256(f"{low} {high}".encode()).hexdigest()]


def test_images_share_the_layers_that_they_have_in_common(images, oci, tmp_path):
    base = oci.tar_of(oci.entry("base", b"x"))
    one = oci.Made(base, oci.tar_of(oci.entry("one")), name="one")
    two = oci.Made(base, oci.tar_of(oci.entry("two")), name="two")
    [first] = images.import_archive(oci.write_directory(tmp_path / "1", one.files()))
    [second] = images.import_archive(oci.write_directory(tmp_path / "2", two.files()))
    assert first.layers[0] == second.layers[0]
    assert len(list((tmp_path / "images" / "snapshots").iterdir())) == 3


def test_several_images_of_one_archive_come_together(images, oci, tmp_path):
    one = oci.Made(oci.tar_of(oci.entry("one")), name="one")
    two = oci.Made(oci.tar_of(oci.entry("two")), name="two:2")
    files = one.files(one.row, two.row, blobs=two.blobs())
    found = images.import_archive(oci.write_tar(tmp_path / "a", files))
    assert [item.names for item in found] == [("docker.io/library/one:latest",), ("docker.io/library/two:2",)]


def test_docker_saves_a_layer_once_and_links_to_it(images, oci, tmp_path):
    layer = oci.tar_of(oci.entry("f", b"x"))
    made = oci.Made(layer, layer, name="twice")
    files = made.docker_files()
    first, second = (name for name in files if name.endswith("layer.tar"))
    del files[second]
    link = oci.symlink(second, f"../{first.partition('/')[0]}/layer.tar")
    (tmp_path / "a").write_bytes(oci.tar_of(*(oci.entry(*file) for file in files.items()), link))
    [image] = images.import_archive(tmp_path / "a")
    assert len(image.layers) == 2


@pytest.mark.parametrize(
    ("annotations", "names"),
    [
        ({"org.opencontainers.image.ref.name": "example.test/a:1"}, ("example.test/a:1",)),
        ({"org.opencontainers.image.ref.name": "busybox:1"}, ("docker.io/library/busybox:1",)),
        ({"org.opencontainers.image.ref.name": "latest"}, ()),
        (
            {"io.containerd.image.name": "a", "org.opencontainers.image.ref.name": "b:1"},
            ("docker.io/library/a:latest",),
        ),
        ({}, ()),
    ],
)
def test_names_come_from_annotations(images, oci, two_layers, tmp_path, annotations, names):
    two_layers.annotations = annotations
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", two_layers.files()))
    assert image.names == names
    assert images.status(image.id) == image


def test_a_name_that_is_given_is_taken_instead(images, oci, two_layers, tmp_path):
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", two_layers.files()), name="mine")
    assert image.names == ("docker.io/library/mine:latest",)
    with pytest.raises(BadReference):
        images.import_archive(tmp_path / "a", name="Not A Name")


def test_a_name_moves_to_the_image_that_has_it_last(images, oci, tmp_path):
    old, new = oci.Made(oci.tar_of(oci.entry("old"))), oci.Made(oci.tar_of(oci.entry("new")))
    [first] = images.import_archive(oci.write_directory(tmp_path / "1", old.files()))
    [second] = images.import_archive(oci.write_directory(tmp_path / "2", new.files()))
    assert second.names == ("example.test/made:1",)
    assert images.status(first.id).names == ()
    assert images.status(first.digests[0]).id == first.id


# Platforms


def index_of(oci, *made_on: tuple) -> tuple[dict, dict[str, bytes]]:
    """A row that leads to an index of images for platforms, and the blobs."""
    blobs, rows = {}, []
    for made, platform in made_on:
        blobs.update(made.blobs())
        rows.append({**made.row, "annotations": {}, "platform": platform})
    index = json.dumps({"schemaVersion": 2, "mediaType": f"{oci.OCI}.index.v1+json", "manifests": rows}).encode()
    blobs[oci.digest(index)] = index
    name = {"io.containerd.image.name": "example.test/many:1"}
    return oci.described(index, f"{oci.OCI}.index.v1+json", annotations=name), blobs


def test_of_an_index_the_image_for_this_machine_is_taken(images, oci, tmp_path):
    mine, theirs = oci.Made(oci.tar_of(oci.entry("mine"))), oci.Made(oci.tar_of(oci.entry("theirs")))
    row, blobs = index_of(
        oci,
        (theirs, {"os": "linux", "architecture": "s390x"}),
        (theirs, {"os": "windows", "architecture": oci.ARCHITECTURE}),
        (mine, {"os": "linux", "architecture": oci.ARCHITECTURE}),
        (theirs, {"os": "unknown", "architecture": "unknown"}),
    )
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", mine.files(row, blobs=blobs)))
    assert image.id == oci.digest(mine.config_blob)
    assert set(image.digests) == {
        f"example.test/many@{row['digest']}",
        f"example.test/many@{oci.digest(mine.manifest_blob)}",
    }


def test_a_manifest_without_a_platform_has_that_of_its_config(images, oci, tmp_path):
    other = oci.Made(oci.tar_of(oci.entry("x")))
    other.config["architecture"] = "mips64"
    with pytest.raises(BadImage, match=f"platform: nothing for linux/{oci.ARCHITECTURE} .* it has linux/mips64"):
        images.import_archive(oci.write_directory(tmp_path / "a", other.files()))
    with pytest.raises(BadImage, match=r"platform: .* is for linux/mips64"):
        images.import_archive(oci.write_tar(tmp_path / "b", other.docker_files()))


@pytest.mark.parametrize(
    ("machine", "offered", "rank"),
    [
        (Machine("amd64", ("", "v1")), Platform("linux", "amd64"), 0),
        (Machine("amd64", ("", "v1")), Platform("linux", "amd64", "v3"), None),
        (Machine("arm", ("v7", "v6", "")), Platform("linux", "arm", "v6"), 1),
        (Machine("arm64", ("v8", "")), Platform("linux", "arm64"), 1),
        (Machine("amd64", ("",)), Platform("windows", "amd64"), None),
        (Machine("amd64", ("",)), Platform("linux", "386"), None),
    ],
)
def test_platforms_are_ranked(machine, offered, rank):
    assert machine.rank(offered) == rank


# What is refused


def change(made, **values):
    made.manifest.update(values)
    return made


def without(values: dict, key: str) -> dict:
    return {each: value for each, value in values.items() if each != key}


def with_layer(made, **values):
    made.manifest["layers"][0] = {**made.manifest["layers"][0], **values}
    return made


def with_config(made, **values):
    made.config.update(values)
    return made


def replaced_blob(made, of: bytes, by: bytes) -> dict[str, bytes]:
    path = f"blobs/sha256/{hashlib.sha256(of).hexdigest()}"
    return {**made.files(), path: by}


ZSTD = b"\x28\xb5\x2f\xfd" + bytes(100)
DOCKER_1 = {"schemaVersion": 1, "fsLayers": [{"blobSum": "x"}], "history": []}

BAD = {  # what is wrong, and words of the error
    ("nothing in it", "neither oci-layout nor manifest"): lambda oci, made: {"readme": b"x"},
    ("another version of the layout", "version '2'"): lambda oci, made: {
        **made.files(),
        "oci-layout": b'{"imageLayoutVersion":"2"}',
    },
    ("an index that is not JSON", "index.json: is invalid"): lambda oci, made: {
        **made.files(),
        "index.json": b"{",
    },
    ("an index that is nested without an end", "index.json: is invalid"): lambda oci, made: {
        **made.files(),
        "index.json": b'{"x": ' + b"[" * 200_000,
    },
    ("an index of nothing", "it has nothing"): lambda oci, made: {
        **made.files(),
        "index.json": b'{"schemaVersion":2,"manifests":[]}',
    },
    ("an index with a number for a list", "manifests`"): lambda oci, made: {
        **made.files(),
        "index.json": b'{"schemaVersion":2,"manifests":1}',
    },
    ("an index that is a manifest", "media type"): lambda oci, made: {**made.files(), "index.json": made.manifest_blob},
    ("a manifest that is an index, too", "at once"): lambda oci, made: change(made, manifests=[]).files(),
    ("a manifest that says it is an index", "media type"): lambda oci, made: change(
        made, mediaType=f"{oci.OCI}.index.v1+json"
    ).files(),
    ("a row that says it is an index", "media type"): lambda oci, made: made.files(
        {**made.row, "mediaType": f"{oci.OCI}.index.v1+json"}
    ),
    ("schema 1", "schema version 1"): lambda oci, made: change(made, **DOCKER_1).files(),
    ("no schema version", "schema version 0"): lambda oci, made: change(made, schemaVersion=0).files(),
    ("a manifest without a config", "config.digest"): lambda oci, made: change(made, config={}).files(),
    ("an artifact", "not that of a container image"): lambda oci, made: change(
        made, config=oci.described(made.config_blob, "application/vnd.example+json")
    ).files(),
    ("no layers", "without layers"): lambda oci, made: change(made, layers=[]).files(),
    ("128 layers", "more than 127"): lambda oci, made: change(made, layers=made.manifest["layers"] * 64).files(),
    ("a layer of another kind", "not that of a layer"): lambda oci, made: with_layer(
        made, mediaType="text/plain"
    ).files(),
    ("a packed layer that says it is plain", "media type"): lambda oci, made: with_layer(
        made, mediaType=f"{oci.OCI}.layer.v1.tar"
    ).files(),
    ("a packed layer that says it is zstd", "does not match its content"): lambda oci, made: with_layer(
        made, mediaType=f"{oci.OCI}.layer.v1.tar+zstd"
    ).files(),
    ("a zstd layer that says it is gzip", "does not match its content"): lambda oci, made: with_layer(
        made, digest=oci.digest(ZSTD), size=len(ZSTD)
    ).files(blobs={oci.digest(ZSTD): ZSTD}),
    ("a digest that leads out", "not a sha256: digest"): lambda oci, made: with_layer(
        made, digest="sha256:../../../etc/passwd"
    ).files(),
    ("another digest", "not a sha256: digest"): lambda oci, made: with_layer(
        made, digest="sha512:" + "a" * 128
    ).files(),
    ("a wrong size", "bytes, not"): lambda oci, made: with_layer(
        made, size=made.manifest["layers"][0]["size"] + 1
    ).files(),
    ("a negative size", "-1 is not a valid size"): lambda oci, made: with_layer(made, size=-1).files(),
    ("a size in letters", "layers[0].size"): lambda oci, made: with_layer(made, size="1").files(),
    ("a wrong size of the manifest", "bytes, not 3"): lambda oci, made: made.files({**made.row, "size": 3}),
    ("another layer under its name", "which does not match its descriptor"): lambda oci, made: replaced_blob(
        made, made.layers[0], b"".join([made.layers[0][:4], b"time", made.layers[0][8:]])
    ),
    ("another manifest under its name", "something else in the archive"): lambda oci, made: replaced_blob(
        made, made.manifest_blob, made.manifest_blob.replace(b"gzip", b"zstd")
    ),
    ("another config under its name", "something else in the archive"): lambda oci, made: replaced_blob(
        made, made.config_blob, made.config_blob.replace(b"linux", b"xinul")
    ),
    ("a layer that is missing", "is not in the archive"): lambda oci, made: without(
        made.files(), f"blobs/sha256/{hashlib.sha256(made.layers[1]).hexdigest()}"
    ),
    ("a layer that is longer", "bytes, not"): lambda oci, made: replaced_blob(
        made, made.layers[0], made.layers[0] + b"\0"
    ),
    ("other diff ids", "unpacks to"): lambda oci, made: with_config(
        made, rootfs={"type": "layers", "diff_ids": ["sha256:" + "a" * 64] * 2}
    ).files(),
    ("diff ids that lead out", "not a sha256: digest"): lambda oci, made: with_config(
        made, rootfs={"type": "layers", "diff_ids": ["sha256:../../x"] * 2}
    ).files(),
    ("too few diff ids", "does not describe 2 layers"): lambda oci, made: with_config(
        made, rootfs={"type": "layers", "diff_ids": []}
    ).files(),
    ("no rootfs", "does not describe 2 layers"): lambda oci, made: with_config(made, rootfs=None).files(),
    ("an environment with a NUL", "NUL"): lambda oci, made: with_config(made, config={"Env": ["A=\0"]}).files(),
    ("an environment of numbers", "config.Env[0]"): lambda oci, made: with_config(made, config={"Env": [1]}).files(),
    ("a config of 10 MB", "more than 4194304"): lambda oci, made: with_config(made, padding="x" * 10_000_000).files(),
    ("a name that is none", "annotations"): lambda oci, made: made.files(
        {**made.row, "annotations": {"io.containerd.image.name": "../../etc"}}
    ),
}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[0])
def test_an_invalid_archive_is_refused_and_leaves_nothing(images, oci, two_layers, tmp_path, case):
    files = BAD[case](oci, two_layers)
    for write, name in ((oci.write_directory, "directory"), (oci.write_tar, "tar")):
        with pytest.raises(BadImage, match=re.escape(case[1])):
            images.import_archive(write(tmp_path / name, files))
    assert traces(images) == ["blobs/sha256"]


def docker_row(made, **values) -> dict[str, bytes]:
    files = made.docker_files()
    [row] = json.loads(files["manifest.json"])
    return {**files, "manifest.json": json.dumps([{**row, **values}]).encode()}


BAD_DOCKER = {
    ("a list of nothing", "names no image"): lambda made: {**made.docker_files(), "manifest.json": b"[]"},
    ("a list that is none", "Expected `array`"): lambda made: {**made.docker_files(), "manifest.json": b"{}"},
    ("a config that leads out", "not in the archive"): lambda made: docker_row(made, Config="../../../etc/passwd"),
    ("a config under another's name", "something else in the archive"): lambda made: {
        **docker_row(made, Config="a" * 64 + ".json"),
        "a" * 64 + ".json": made.config_blob,
    },
    ("a layer that leads out", "not in the archive"): lambda made: docker_row(
        made, Layers=["/etc/passwd", "/etc/passwd"]
    ),
    ("too few layers", "does not describe 1 layers"): lambda made: docker_row(made, Layers=["x"]),
    ("no layers", "without layers"): lambda made: docker_row(made, Layers=None),
    ("a name that is none", "RepoTags"): lambda made: docker_row(made, RepoTags=["NOT VALID"]),
    ("layers in another order", "unpacks to"): lambda made: docker_row(
        made, Layers=[f"{number:064x}/layer.tar" for number in (1, 0)]
    ),
}


@pytest.mark.parametrize("case", BAD_DOCKER, ids=lambda case: case[0])
def test_an_invalid_docker_archive_is_refused_and_leaves_nothing(images, oci, two_layers, tmp_path, case):
    with pytest.raises(BadImage, match=re.escape(case[1])):
        images.import_archive(oci.write_tar(tmp_path / "a", BAD_DOCKER[case](two_layers)))
    assert traces(images) == ["blobs/sha256"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_truncated_archive_is_refused_and_the_complete_one_imported(images, oci, two_layers, tmp_path, packed):
    whole = oci.write_tar(tmp_path / "whole", two_layers.files(), packed=packed).read_bytes()
    end = len(whole) if packed else len(whole.rstrip(b"\0"))
    for sixteenths in range(16):
        (tmp_path / "part").write_bytes(whole[: end * sixteenths // 16])
        with pytest.raises(BadImage):
            images.import_archive(tmp_path / "part")
    assert traces(images) == ["blobs/sha256"]
    assert len(images.import_archive(tmp_path / "whole")) == 1


@pytest.mark.parametrize("data", [b"", b"text", ZSTD, b"BZh9" + bytes(50), bytes(2048), b"\x1f\x8b"])
def test_a_file_that_is_not_an_archive_is_refused(images, tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(BadImage):
        images.import_archive(tmp_path / "a")


def test_special_files_are_refused_without_waiting_for_them(images, oci, two_layers, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadImage, match="neither a file nor a directory"):
        images.import_archive(tmp_path / "fifo")
    layout = oci.write_directory(tmp_path / "a", two_layers.files())
    (layout / "index.json").unlink()
    os.mkfifo(layout / "index.json")
    with pytest.raises(BadImage, match=r"index\.json: is not a file"):
        images.import_archive(layout)


def test_a_layout_may_have_links_inside_but_none_that_lead_out(images, oci, two_layers, tmp_path):
    layout = oci.write_directory(tmp_path / "a", two_layers.files())
    (layout / "index.json").rename(layout / "really.json")
    (layout / "index.json").symlink_to("really.json")
    assert images.import_archive(layout)
    (layout / "index.json").unlink()
    (layout / "really.json").rename(tmp_path / "outside.json")
    (layout / "index.json").symlink_to("../outside.json")
    with pytest.raises(BadImage):
        images.import_archive(layout)


def test_indexes_that_lead_to_each_other_in_great_numbers_end_soon(images, oci, two_layers, tmp_path):
    row, blobs = {**two_layers.row}, two_layers.blobs()
    for _ in range(5):
        index = json.dumps({"schemaVersion": 2, "manifests": [row] * 50}).encode()
        blobs[oci.digest(index)] = index
        row = oci.described(index, f"{oci.OCI}.index.v1+json")
    with pytest.raises(OverLimit):
        images.import_archive(oci.write_directory(tmp_path / "a", two_layers.files(row, blobs=blobs)))


def test_an_archive_above_a_limit_is_refused_and_leaves_nothing(tmp_path, oci):
    images = Images(tmp_path / "images", limits=Limits(data=1 << 20, ratio_from=1 << 20))
    bomb = oci.Made(oci.tar_of(oci.entry("zeros", bytes(2 << 20))))
    for write, packed in ((oci.write_directory, {}), (oci.write_tar, {"packed": True})):
        with pytest.raises(OverLimit):
            images.import_archive(write(tmp_path / write.__name__, bomb.files(), **packed))
    assert traces(images) == ["blobs/sha256"]
    images.close()


def test_an_archive_is_validated_before_any_layer_is_unpacked(images, oci, two_layers, tmp_path, monkeypatch):
    bad = oci.Made(oci.tar_of(oci.entry("x")), name="bad")
    bad.config["rootfs"] = None
    files = two_layers.files(two_layers.row, bad.row, blobs=bad.blobs())
    monkeypatch.setattr("podwire.runtime.images.layers.unpack_layer", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(BadImage):
        images.import_archive(oci.write_directory(tmp_path / "a", files))


def test_layers_that_are_there_are_verified_all_the_same(images, oci, two_layers, tmp_path):
    images.import_archive(oci.write_directory(tmp_path / "a", two_layers.files()))
    damaged = replaced_blob(two_layers, two_layers.layers[0], bytes(len(two_layers.layers[0])))
    with pytest.raises(BadImage):
        images.import_archive(oci.write_directory(tmp_path / "b", damaged))


def test_docker_layers_may_be_packed(images, oci, two_layers, tmp_path):
    two_layers.plain = [gzip.compress(layer) for layer in two_layers.plain]
    path = oci.write_tar(tmp_path / "a", two_layers.docker_files())
    first, again = images.import_archive(path), images.import_archive(path)
    assert first == again
    assert len(first[0].digests) == 1


def test_a_config_is_the_workload_s_data_and_does_nothing_here(images, oci, tmp_path):
    layer = oci.tar_of(oci.entry("x"))
    document = {
        "Volumes": {"../../etc": {}},
        "WorkingDir": "/proc/self/fd/7",
        "Labels": {"io.cri-containerd.image": "managed", "containerd.io/gc.root": "x"},
        "Env": [f"V{number}=" + "x" * 1000 for number in range(1000)],
        "ExposedPorts": {"80/tcp": {}},
        "User": "4294967296",
    }
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", oci.Made(layer, **document).files()))
    assert image.config.volumes == ("../../etc",)
    assert (image.uid, image.username) == (None, "4294967296")
    assert not Path("/etc/x").exists()


def test_extended_headers_that_hold_for_all_are_comments(images, oci, tmp_path):
    head = tarfile.TarInfo.create_pax_global_header({"comment": "x", "path": "other"})
    made = oci.Made(head + oci.tar_of(oci.entry("f", b"x")))
    [image] = images.import_archive(oci.write_directory(tmp_path / "a", made.files()))
    assert (images.rootfs_layers(image)[0] / "f").read_bytes() == b"x"

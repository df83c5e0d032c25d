"""Directories kept for containers, and for whom."""

import pytest

from podwire.runtime.images import Images
from podwire.runtime.images.build import build_root
from podwire.runtime.images.errors import ImageInUse


def test_the_store_lists_the_containers_that_it_holds(tmp_path):
    images = Images(tmp_path)
    image = build_root(images)
    images.prepare("a" * 64, image)
    images.prepare("b" * 64, image)
    images.release("a" * 64)
    assert images.held() == ["b" * 64]
    images.close()


def test_runtimes_that_share_a_store_see_only_their_own_containers(tmp_path):
    first, second = Images(tmp_path), Images(tmp_path, owner="node-2")
    image = build_root(first)
    first.prepare("a" * 64, image)
    second.prepare("b" * 64, image)
    assert (first.held(), second.held()) == (["a" * 64], ["b" * 64])
    first.release("a" * 64)
    with pytest.raises(ImageInUse):
        first.remove(image.id)
    first.close()
    second.close()

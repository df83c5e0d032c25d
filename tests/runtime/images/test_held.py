"""What is kept for containers, and for whom."""

from podwire.runtime.images import Images
from podwire.runtime.images.build import build_root


def test_the_store_tells_for_which_containers_it_keeps_something(tmp_path):
    images = Images(tmp_path)
    image = build_root(images)
    images.prepare("a" * 64, image)
    images.prepare("b" * 64, image)
    images.release("a" * 64)
    assert images.held() == ["b" * 64]
    images.close()

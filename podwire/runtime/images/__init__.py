"""Images: pulled, imported or built, verified and unpacked into layers for overlayfs."""

from podwire.runtime.images.errors import BadImage, ImageError
from podwire.runtime.images.image import Image, ImageConfig, parse_user
from podwire.runtime.images.limits import Limits
from podwire.runtime.images.snapshots import Writable
from podwire.runtime.images.store import FsInfo, Images

__all__ = ["BadImage", "FsInfo", "Image", "ImageConfig", "ImageError", "Images", "Limits", "Writable", "parse_user"]

"""Errors of images.

ImageError
├── BadImage           an archive or its content is invalid; has the field and the reason
│   └── OverLimit      … or exceeds a limit
├── BadReference       an invalid name, digest or id
├── AmbiguousImage     a short id that several images share
├── NoSuchImage        an image that does not exist
├── ImageInUse         containers run from it
├── PullFailed         no host of the registry gave the image; says which and why
└── StoreFull          the disk is full; nothing was stored
"""

from collections.abc import Iterable


class ImageError(Exception):
    pass


class BadImage(ImageError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class OverLimit(BadImage):
    pass


class BadReference(ImageError):
    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.text[:300]!r}: {self.reason}"


class AmbiguousImage(ImageError):
    def __init__(self, text: str, ids: Iterable[str]) -> None:
        self.ids = sorted(ids)
        super().__init__(f"{text!r} is the beginning of {len(self.ids)} images' ids")


class NoSuchImage(ImageError):
    def __init__(self, text: str) -> None:
        super().__init__(f"there is no image {text[:300]!r}")


class ImageInUse(ImageError):
    def __init__(self, image_id: str, by: str) -> None:
        super().__init__(f"image {image_id} is in use by {by}")


class StoreFull(ImageError):
    pass


class PullFailed(ImageError):
    """`missing`: the registry does not have it; `denied`: it wants other credentials."""

    def __init__(self, reason: str, *, missing: bool = False, denied: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing
        self.denied = denied

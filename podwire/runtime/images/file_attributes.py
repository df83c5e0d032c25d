"""Owner, mode, extended attributes and time of a file, as its entry in a tar has them."""

import errno
import os

from podwire.runtime.images.errors import BadImage
from podwire.runtime.images.tar import Entry


def dress(descriptor: int, entry: Entry, field: str) -> None:
    """Everything but the time. The owner comes first: a change of owner takes setuid and capabilities away."""
    os.fchown(descriptor, entry.uid, entry.gid)
    os.fchmod(descriptor, entry.mode)
    for key, value in entry.xattrs.items():
        if is_kept(key):
            _set_xattr(descriptor, key, value, field)


def dress_by_name(parent: int, base: bytes, entry: Entry, *, mode: bool = True) -> None:
    """For what cannot be opened without doing something. It was made a moment ago, so it is what we made."""
    os.chown(base, entry.uid, entry.gid, dir_fd=parent, follow_symlinks=False)
    if mode:
        os.chmod(base, entry.mode, dir_fd=parent)
    os.utime(base, ns=(entry.mtime_ns, entry.mtime_ns), dir_fd=parent, follow_symlinks=False)


def set_time(descriptor: int, time: int) -> None:
    os.utime(descriptor, ns=(time, time))


def is_kept(key: str) -> bool:
    """`trusted.*` and `user.overlay.*` steer overlayfs; the rest of `security.*` is this machine's own business."""
    return key == "security.capability" or (key.startswith("user.") and not key.startswith("user.overlay."))


def _set_xattr(descriptor: int, key: str, value: bytes, field: str) -> None:
    try:
        os.setxattr(descriptor, os.fsencode(key), value)
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # a file system without them: an image is still an image
            return
        if error.errno == errno.ENOSPC and not os.fstatvfs(descriptor).f_bavail:
            raise
        raise BadImage(field, f"the extended attribute {key!a} cannot be set: {error.strerror}") from error

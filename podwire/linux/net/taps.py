"""Tap links: a program reads and writes the frames of a link. A tap that is made here persists without a holder."""

import errno
import fcntl
import os
from struct import Struct

from podwire.linux import errors
from podwire.linux.net.links import checked_name

DEVICE = "/dev/net/tun"
_SET_LINK, _SET_PERSISTENT = 0x400454CA, 0x400454CB
_TAP, _NO_PACKET_INFO, _EXCLUSIVE = 0x0002, 0x1000, 0x8000
_REQUEST = Struct("=16sH22x")

_ERRORS: errors.Names = {errno.EBUSY: errors.LinkExists, errno.ENOENT: errors.NoSuchPath}


def make_tap(name: str) -> None:
    """In the calling thread's namespace. LinkExists; NoSuchPath on a machine without /dev/net/tun."""
    checked_name(name)
    try:
        opened = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(opened, _SET_LINK, _REQUEST.pack(name.encode(), _TAP | _NO_PACKET_INFO | _EXCLUSIVE))
            fcntl.ioctl(opened, _SET_PERSISTENT, 1)
        finally:
            os.close(opened)
    except OSError as error:
        raise errors.from_oserror(error, f"add tap {name}", _ERRORS) from error

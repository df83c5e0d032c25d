"""An image as the rest of the runtime sees it."""

import re
from dataclasses import dataclass

from podwire.runtime.images.documents import Config, Settings
from podwire.runtime.images.errors import BadImage

LAST_ID = (1 << 32) - 2
"""The highest user or group; the one above means "no change" to the kernel, and what is above that wraps to root."""
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,254}\$?", re.ASCII)


@dataclass(frozen=True, slots=True)
class User:
    """Who an image wants to be: each a number or a name, the group empty when it is not said."""

    user: int | str
    group: int | str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image wants to be run. Other people's data: nothing in it decides anything outside of its container."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    workdir: str = ""
    user: str = ""
    stop_signal: str = ""
    volumes: tuple[str, ...] = ()
    exposed_ports: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """`names` are repository:tag, `digests` repository@digest; `layers` are chain ids, lowest first."""

    id: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    size: int
    layers: tuple[str, ...]
    config: ImageConfig
    pinned: bool = False

    @property
    def uid(self) -> int | None:
        """The number that the image runs as, when it says one."""
        user = _user_or_text(self.config.user)
        return user if isinstance(user, int) else None

    @property
    def username(self) -> str:
        """The name that the image runs as. What cannot be used is shown as it is: nobody must take it for root."""
        user = _user_or_text(self.config.user)
        return user if isinstance(user, str) else ""


def parse_user(text: str) -> User | None:
    """`USER` of an image: a number or a name, and maybe a group; None when it says nothing.

    Raises BadImage for anything else: this is called where the image is used, not where it is kept.
    """
    if not text:
        return None
    user, colon, group = text.partition(":")
    return User(_identity(user, text), _identity(group, text) if colon else "")


def _identity(part: str, text: str) -> int | str:
    if part.isascii() and part.isdigit():
        if len(part) > 10 or int(part) > LAST_ID:
            raise BadImage("config.User", f"{text[:80]!r} is not within 0 and {LAST_ID}")
        return int(part)
    if not _NAME.fullmatch(part):
        raise BadImage("config.User", f"{text[:80]!r} is neither a number nor a name")
    return part


def _user_or_text(text: str) -> int | str | None:
    try:
        user = parse_user(text)
    except BadImage:
        return text
    return user.user if user else None


def image_config(config: Config) -> ImageConfig:
    told = config.config or Settings()
    return ImageConfig(
        entrypoint=tuple(told.entrypoint or ()),
        cmd=tuple(told.cmd or ()),
        env=tuple(told.env or ()),
        workdir=told.working_dir,
        user=told.user,
        stop_signal=told.stop_signal,
        volumes=tuple(sorted(told.volumes or ())),
        exposed_ports=tuple(sorted(told.exposed_ports or ())),
        labels=tuple(sorted((told.labels or {}).items())),
    )

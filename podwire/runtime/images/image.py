"""An image as the other packages of the runtime see it."""

import re
from dataclasses import dataclass

from podwire.runtime.images.documents import Config, Settings
from podwire.runtime.images.errors import BadImage

LAST_ID = (1 << 32) - 2
"""The highest user or group; the one above means "no change" to the kernel, and what is above that wraps to root."""
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,254}\$?", re.ASCII)


@dataclass(frozen=True, slots=True)
class User:
    """The user of an image: numbers or names; the group is empty when the image has none."""

    user: int | str
    group: int | str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """The settings of an image. Untrusted data: it has no effect outside of its container."""

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
        """The numeric user of the image, if it has one."""
        user = _user_or_text(self.config.user)
        return user if isinstance(user, int) else None

    @property
    def username(self) -> str:
        """The user name of the image. An invalid one is shown as it is, so that it is not taken for root."""
        user = _user_or_text(self.config.user)
        return user if isinstance(user, str) else ""


def parse_user(text: str) -> User | None:
    """Parses `USER` of an image: a number or a name, and maybe a group; None when it is empty.

    Raises BadImage. Called where the image is used, not at import.
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
    settings = config.config or Settings()
    return ImageConfig(
        entrypoint=tuple(settings.entrypoint or ()),
        cmd=tuple(settings.cmd or ()),
        env=tuple(settings.env or ()),
        workdir=settings.working_dir,
        user=settings.user,
        stop_signal=settings.stop_signal,
        volumes=tuple(sorted(settings.volumes or ())),
        exposed_ports=tuple(sorted(settings.exposed_ports or ())),
        labels=tuple(sorted((settings.labels or {}).items())),
    )

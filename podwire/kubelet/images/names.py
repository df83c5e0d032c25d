"""Names of images: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`. Pure."""

import re
from dataclasses import dataclass

LATEST = "latest"
HUB, HUB_ALIAS, HUB_FOLDER = "docker.io", "index.docker.io", "library/"
"""The default registry."""

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_WHOLE = re.compile(
    rf"(?P<repository>{_HOST}/{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_ID = re.compile(r"[a-f0-9]{64}")
_LONGEST_REPOSITORY = 255


class BadImageName(ValueError):
    """The text is not a name of an image."""


@dataclass(frozen=True, slots=True)
class ImageName:
    """`repository` includes the host; without tag and digest, the tag is latest."""

    repository: str
    tag: str
    digest: str


def image_name(text: str) -> ImageName:
    if _ID.fullmatch(text):
        raise BadImageName(f"invalid repository name ({text}), cannot specify 64-byte hexadecimal strings")
    host, path = _split(text)
    repository = path.partition("@")[0].partition(":")[0]
    if repository != repository.lower():
        raise BadImageName(f"invalid reference format: repository name ({repository}) must be lowercase")
    match = _WHOLE.fullmatch(f"{host}/{path}")
    if match is None:
        raise BadImageName("invalid reference format")
    if len(repository) > _LONGEST_REPOSITORY:
        raise BadImageName(f"repository name must not be more than {_LONGEST_REPOSITORY} characters")
    tag, digest = match["tag"] or "", match["digest"] or ""
    return ImageName(match["repository"], tag or ("" if digest else LATEST), digest)


def with_tag(text: str) -> str:
    """The name as it was written, with the tag latest if it has neither tag nor digest."""
    name = image_name(text)
    return text if name.digest or text.endswith(f":{name.tag}") else f"{text}:{name.tag}"


def default_policy(text: str) -> str:
    """The default imagePullPolicy: Always for the tag latest, which moves."""
    return "Always" if image_name(text).tag == LATEST else "IfNotPresent"


def _split(text: str) -> tuple[str, str]:
    """Host and path. The first component is a host if it has a dot, a port or upper-case letters, or is localhost."""
    host, slash, path = text.partition("/")
    if not slash or not (set(".:") & set(host) or host == "localhost" or host != host.lower()):
        host, path = HUB, text
    if host == HUB_ALIAS:
        host = HUB
    return host, HUB_FOLDER + path if host == HUB and "/" not in path else path

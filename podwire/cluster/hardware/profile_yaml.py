"""Reads profiles from YAML, strictly: an unknown field is an error."""

import re
from pathlib import Path

from podwire.cluster.hardware.profile import MOST_VFS, BadProfile, Gpu, Nic, Profile, Root, checked, parts
from podwire.protocols.settings import BadConfig, Loader, Read, between, list_of, mapped, matching, parsed

PROFILES = Path(__file__).with_name("profiles")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_ID = re.compile(r"(?:0x)?([0-9a-f]{4})")
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")


def names() -> list[str]:
    """Returns the profiles that come with podwire."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def text_of(which: str) -> str:
    """Returns the text of a file, or of a profile that comes with podwire. Raises BadProfile."""
    known = which in names()
    try:
        return (PROFILES / f"{which}.yaml" if known else Path(which)).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadProfile("", f"{which}: is neither a file nor one of the profiles {', '.join(names())}") from error
    except (OSError, UnicodeError) as error:
        raise BadProfile("", f"{which}: {error}") from error


def load(which: str) -> Profile:
    """Raises BadProfile."""
    text = text_of(which)
    try:
        return profile(parsed(text.encode(), "the file", _Loader))
    except (BadConfig, BadProfile) as error:
        raise BadProfile("", f"{which}: {error}") from error


class _Loader(Loader):
    """Reads `0000:10:00.0` and `02:00:00:00:00:01` as text: in YAML 1.1 they are numbers of base 60."""


_Loader.yaml_implicit_resolvers = {}
for _first in "0123456789":
    _Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"(?:0|[1-9][0-9]{0,8})$"), [_first])


def profile(data: object) -> Profile:
    """Raises BadConfig for a field, BadProfile for contradictions."""
    keys = {"numaNodes": between(1, 64), "pcieRoots": list_of(_root), "nics": list_of(_nic), "gpus": list_of(_gpu)}
    return checked(Profile(**mapped("", data, keys, renamed={"numaNodes": "numa_nodes", "pcieRoots": "roots"})))


def _root(field: str, data: object) -> Root:
    keys = {"name": _like(_ROOT, "pci0000:3a"), "numa": between(0, 63)}
    return Root(**mapped(field, data, keys, required=("name",)))


def _nic(field: str, data: object) -> Nic:
    renamed = {"vfDevice": "vf_device", "vfDriver": "vf_driver"}
    return Nic(**mapped(field, data, {**_PCI_FIELDS, **_NIC_FIELDS}, required=("name", "pci"), renamed=renamed))


def _gpu(field: str, data: object) -> Gpu:
    return Gpu(**mapped(field, data, {**_PCI_FIELDS, "model": _text}, required=("pci",)))


def _like(pattern: re.Pattern[str], such_as: str) -> Read:
    def reading(field: str, value: object) -> str:
        text = str(value).lower() if isinstance(value, str | int) else ""
        found = pattern.fullmatch(text)
        if found is None:
            raise BadConfig(field, f"{value!r} must look like {such_as}")
        return text

    return reading


def _id(field: str, value: object) -> str:
    text: str = _like(_ID, "0x15b3")(field, value)
    return text.removeprefix("0x")


def _address(field: str, value: object) -> str:
    text = value.lower() if isinstance(value, str) else ""
    try:
        parts(text)
    except BadProfile as error:
        raise BadConfig(field, f"{value!r} is not a PCI address such as 0000:3b:00.0") from error
    return text


_link = matching(_NAME, "is not a link name: a letter and up to 14 letters, digits, '_', '.', '-'")
_word = matching(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"), "is not a name: up to 63 letters, digits, '_', '.', '-'"
)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 64 or not value.isprintable():
        raise BadConfig(field, f"{value!r} must be text of 1 to 64 characters")
    return value


_PCI_FIELDS: dict[str, Read] = {
    "pci": _address,
    "root": _like(_ROOT, "pci0000:3a"),
    "numa": between(0, 63),
    "vendor": _id,
    "device": _id,
    "driver": _word,
}
_NIC_FIELDS: dict[str, Read] = {
    "name": _link,
    "speed": between(10, 1_600_000),
    "mac": _like(_MAC, "02:00:00:00:00:01, of one station"),
    "mtu": between(68, 65_535),
    "vfs": between(0, MOST_VFS),
    "vfDevice": _id,
    "vfDriver": _word,
    "rdma": _word,
}

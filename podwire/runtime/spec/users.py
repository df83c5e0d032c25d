"""The user of a container: uid, gid and groups, from CRI, the image and the image's passwd and group."""

from collections.abc import Iterable
from dataclasses import dataclass

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

LAST_ID = 2**32 - 2
"""The largest id; the one above means "no change" to the kernel."""


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounts:
    """The image's passwd and group files as text; empty when it has none."""

    passwd: str = ""
    group: str = ""

    def user(self, name: str) -> tuple[int, int] | None:
        """Returns uid and gid of a user by name or by number."""
        for fields in _rows(self.passwd, 4):
            uid, gid = _number(fields[2]), _number(fields[3])
            if name in (fields[0], fields[2]) and uid is not None and gid is not None:
                return uid, gid
        return None

    def name_of(self, uid: int) -> str:
        return next((fields[0] for fields in _rows(self.passwd, 4) if fields[2] == str(uid)), "")

    def gid(self, name: str) -> int | None:
        for fields in _rows(self.group, 3):
            if fields[0] == name and (gid := _number(fields[2])) is not None:
                return gid
        return None

    def groups_of(self, name: str) -> list[int]:
        """Returns the groups that list a user as a member."""
        if not name:
            return []
        rows = (fields for fields in _rows(self.group, 4) if name in fields[3].split(","))
        return [gid for fields in rows if (gid := _number(fields[2])) is not None]


def _rows(text: str, count: int) -> Iterable[list[str]]:
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) >= count:
            yield fields


def _number(text: str) -> int | None:
    """Returns an id; None for what is not one. The files are an image's: a number may have any length."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        return None
    return number if (number := int(text)) <= LAST_ID else None


def user_of(security: pb.LinuxContainerSecurityContext, image_user: str, accounts: Accounts) -> User:
    """Returns the user to run as. A group without a user is an error, as CRI requires."""
    asked = security.HasField("run_as_user") or bool(security.run_as_username)
    if security.HasField("run_as_group") and not asked:
        raise InvalidArgument("linux.security_context.run_as_group: run_as_user or run_as_username must be given too")
    if security.HasField("run_as_user"):
        uid = _id(security.run_as_user.value, "linux.security_context.run_as_user")
        known = accounts.user(str(uid))
        gid = known[1] if known else 0
    else:
        uid, gid = _named(security.run_as_username or image_user, accounts)
    if security.HasField("run_as_group"):
        gid = _id(security.run_as_group.value, "linux.security_context.run_as_group")
    groups = [_id(group, "linux.security_context.supplemental_groups") for group in security.supplemental_groups]
    if security.supplemental_groups_policy == pb.SupplementalGroupsPolicy.Value("Merge"):
        groups += accounts.groups_of(accounts.name_of(uid))
    return User(uid, gid, tuple(dict.fromkeys([gid, *groups])))


def _named(text: str, accounts: Accounts) -> tuple[int, int]:
    """Parses `user`, `uid`, `user:group` or `uid:gid` of an image or of run_as_username; empty is root."""
    if not text:
        return 0, 0
    name, _, group = text.partition(":")
    known = accounts.user(name)
    if known is None and name.isdecimal():
        known = _parsed_id(name, "user"), 0
    if known is None:
        raise InvalidArgument(f"user {name[:80]!r} is not in the image's /etc/passwd")
    uid, gid = known
    if not group:
        return uid, gid
    number = _parsed_id(group, "group") if group.isdecimal() else accounts.gid(group)
    if number is None:
        raise InvalidArgument(f"group {group[:80]!r} is not in the image's /etc/group")
    return uid, number


def _parsed_id(text: str, field: str) -> int:
    if (number := _number(text)) is None:
        raise InvalidArgument(f"{field}: {text[:80]!r} is not between 0 and {LAST_ID}")
    return number


def _id(value: int, field: str) -> int:
    if not 0 <= value <= LAST_ID:
        raise InvalidArgument(f"{field}: {value} is not between 0 and {LAST_ID}")
    return value

"""The AppArmor profile of a container, by name. Pure; the profiles themselves are loaded by the operator."""

from collections.abc import Collection

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

FIELD = "linux.security_context.apparmor"
DEFAULT = "podwire-default"
"""The profile of `RuntimeDefault`."""
_DEPRECATED = {"": "", "unconfined": "", "runtime/default": DEFAULT}


def apparmor_profile(security: pb.LinuxContainerSecurityContext, loaded: Collection[str] | None) -> str:
    """Returns the name of the profile; empty for none. Raises InvalidArgument for a profile that is not loaded.

    `loaded` has the profiles of this kernel; None means that it has no AppArmor, and every profile is refused.
    """
    name = _requested(security)
    if not name or security.privileged:
        return ""
    if loaded is None:
        raise InvalidArgument(f"{FIELD}: profile {name!r} cannot be enforced: this kernel has no AppArmor")
    if name not in loaded:
        raise InvalidArgument(f"{FIELD}: profile {name!r} is not loaded; load it with apparmor_parser")
    return name


def _requested(security: pb.LinuxContainerSecurityContext) -> str:
    if not security.HasField("apparmor"):
        old = security.apparmor_profile
        return _DEPRECATED[old] if old in _DEPRECATED else _named(old.removeprefix("localhost/"))
    match security.apparmor.profile_type:
        case pb.SecurityProfile.RuntimeDefault:
            return DEFAULT
        case pb.SecurityProfile.Localhost:
            return _named(security.apparmor.localhost_ref.removeprefix("localhost/"))
    return ""


def _named(name: str) -> str:
    if not name or "\x00" in name or len(name) > 4095:
        raise InvalidArgument(f"{FIELD}: {name[:80]!r} is not the name of a profile")
    return name

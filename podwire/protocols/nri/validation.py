"""The validator that is always there: it refuses kinds of adjustments that an operator does not want at all."""

from typing import Protocol

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.owners import REMOVED


class Rules(Protocol):
    """Adjustments that an operator may reject; the names are containerd's."""

    @property
    def enable(self) -> bool: ...
    @property
    def reject_oci_hook_adjustment(self) -> bool: ...
    @property
    def reject_runtime_default_seccomp_adjustment(self) -> bool: ...
    @property
    def reject_unconfined_seccomp_adjustment(self) -> bool: ...
    @property
    def reject_custom_seccomp_adjustment(self) -> bool: ...
    @property
    def reject_namespace_adjustment(self) -> bool: ...
    @property
    def reject_sysctl_adjustment(self) -> bool: ...


def default_verdict(rules: Rules, request: pb.ValidateContainerAdjustmentRequest) -> str:
    """Why the adjustment is rejected, in containerd's words; nothing when it is fine."""
    if not rules.enable:
        return ""
    owners = request.owners.owners.get(request.container.id, pb.FieldOwners())
    return (
        _hooks(rules, owners)
        or _seccomp(rules, owners, request.container)
        or _namespaces(rules, owners)
        or _sysctl(rules, owners)
    )


def _hooks(rules: Rules, owners: pb.FieldOwners) -> str:
    who = owners.simple.get(pb.OciHooks, "")
    if not rules.reject_oci_hook_adjustment or not who:
        return ""
    return f'{"plugins" if "," in who else "plugin"} "{who}" attempted restricted OCI hook injection'


def _seccomp(rules: Rules, owners: pb.FieldOwners, container: pb.Container) -> str:
    """Compares with the original container: without a profile it is as unconfined as with an unconfined one."""
    who = owners.simple.get(pb.SeccompPolicy, "")
    profile = container.linux.seccomp_profile.profile_type
    if not container.linux.HasField("seccomp_profile") or profile == pb.SecurityProfile.UNCONFINED:
        kind, rejected = "unconfined", rules.reject_unconfined_seccomp_adjustment
    elif profile == pb.SecurityProfile.RUNTIME_DEFAULT:
        kind, rejected = "runtime default", rules.reject_runtime_default_seccomp_adjustment
    else:
        kind, rejected = "custom", rules.reject_custom_seccomp_adjustment
    return f"plugin {who} attempted restricted {kind} seccomp policy adjustment" if who and rejected else ""


def _namespaces(rules: Rules, owners: pb.FieldOwners) -> str:
    found = owners.compound[pb.Namespace].owners if pb.Namespace in owners.compound else {}
    if not rules.reject_namespace_adjustment or not found:
        return ""
    who = ", ".join(f'"{found[kind]}" (namespace "{kind}")' for kind in sorted(found))
    return f"attempted restricted namespace adjustment by plugin(s) {who}"


def _sysctl(rules: Rules, owners: pb.FieldOwners) -> str:
    """To remove one is an adjustment too; containerd lets that pass."""
    found = owners.compound[pb.Sysctl].owners if pb.Sysctl in owners.compound else {}
    if not rules.reject_sysctl_adjustment or not found:
        return ""
    who = dict.fromkeys(found[key] for key in sorted(found, key=lambda name: name.removeprefix(REMOVED)))
    return f"attempted restricted sysctl adjustment by plugin(s) {', '.join(who)}"

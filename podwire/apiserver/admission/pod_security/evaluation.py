"""Evaluates pods against a level of a version: which checks apply, and since when. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from podwire.apiserver.admission.pod_security import baseline, restricted
from podwire.apiserver.admission.pod_security.levels import Level, LevelVersion
from podwire.apiserver.admission.pod_security.results import Check, Violation
from podwire.kinds.stored import Object

NEWEST = 36
"""The newest minor version whose definition is known; newer ones, and latest, mean this one."""


@dataclass(frozen=True, slots=True)
class VersionedCheck:
    """A check since each minor version; the newest that is not above the requested one applies."""

    since: Mapping[int, Check]
    replaces: str = ""
    """The check of baseline that does not run where this one does."""

    def at(self, minor: int) -> Check | None:
        versions = [version for version in self.since if version <= minor]
        return self.since[max(versions)] if versions else None


BASELINE: Mapping[str, VersionedCheck] = {
    "appArmorProfile": VersionedCheck({0: baseline.app_armor}),
    "capabilities_baseline": VersionedCheck({0: baseline.capabilities}),
    "hostNamespaces": VersionedCheck({0: baseline.host_namespaces}),
    "hostPathVolumes": VersionedCheck({0: baseline.host_path_volumes}),
    "hostPorts": VersionedCheck({0: baseline.host_ports}),
    "hostProbesAndHostLifecycle": VersionedCheck({34: baseline.host_probes}),
    "privileged": VersionedCheck({0: baseline.privileged}),
    "procMount": VersionedCheck({0: baseline.proc_mount, 35: baseline.proc_mount_1_35}),
    "seLinuxOptions": VersionedCheck(
        {
            0: baseline.selinux(baseline.SELINUX_TYPES),
            31: baseline.selinux(baseline.SELINUX_TYPES | {"container_engine_t"}),
        }
    ),
    "seccompProfile_baseline": VersionedCheck({0: baseline.seccomp, 19: baseline.seccomp_1_19}),
    "sysctls": VersionedCheck(
        {
            0: baseline.sysctls(baseline.SYSCTLS),
            27: baseline.sysctls(baseline.SYSCTLS_1_27),
            29: baseline.sysctls(baseline.SYSCTLS_1_29),
            32: baseline.sysctls(baseline.SYSCTLS_1_32),
        }
    ),
    "windowsHostProcess": VersionedCheck({0: baseline.windows_host_process}),
}
RESTRICTED: Mapping[str, VersionedCheck] = {
    "allowPrivilegeEscalation": VersionedCheck(
        {8: restricted.privilege_escalation, 25: restricted.privilege_escalation_1_25}
    ),
    "capabilities_restricted": VersionedCheck(
        {22: restricted.capabilities, 25: restricted.capabilities_1_25}, replaces="capabilities_baseline"
    ),
    "procMount_restricted": VersionedCheck({35: baseline.proc_mount}, replaces="procMount"),
    "restrictedVolumes": VersionedCheck({0: restricted.volumes}, replaces="hostPathVolumes"),
    "runAsNonRoot": VersionedCheck({0: restricted.run_as_non_root, 35: restricted.run_as_non_root_1_35}),
    "runAsUser": VersionedCheck({23: restricted.run_as_user, 35: restricted.run_as_user_1_35}),
    "seccompProfile_restricted": VersionedCheck(
        {19: restricted.seccomp, 25: restricted.seccomp_1_25}, replaces="seccompProfile_baseline"
    ),
}
"""Both by name: violations are reported in the order of names, those of baseline first."""


@lru_cache(maxsize=128)
def checks_of(policy: LevelVersion) -> Sequence[Check]:
    """Returns the checks of a level in a version, in the order in which they report."""
    if policy.level is Level.PRIVILEGED:
        return ()
    minor = min(policy.minor, NEWEST)
    strict = {
        name: check
        for name, versions in (RESTRICTED.items() if policy.level is Level.RESTRICTED else ())
        if (check := versions.at(minor)) is not None
    }
    replaced = {RESTRICTED[name].replaces for name in strict}
    basic = {name: versions.at(minor) for name, versions in BASELINE.items() if name not in replaced}
    return [check for _, check in (*sorted(basic.items()), *sorted(strict.items())) if check is not None]


def evaluate(policy: LevelVersion, metadata: Object, spec: Object) -> list[Violation]:
    """Returns what the policy forbids in a pod."""
    results = (check(metadata, spec) for check in checks_of(policy))
    return [violation for violation in results if violation is not None]


def detail(violations: Sequence[Violation]) -> str:
    return ", ".join(map(str, violations))


def reasons(violations: Sequence[Violation]) -> str:
    return ", ".join(violation.reason for violation in violations)

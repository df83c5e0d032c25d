import pytest

C = "spec.containers[0].securityContext"
P = "spec.securityContext"
TYPES = 'supported values: "Localhost", "RuntimeDefault", "Unconfined"'
RANGE = "must be between 0 and 2147483647, inclusive"
SYSCTL = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)

CASES = {
    "a negative user": ({f"{C}.runAsUser": -1}, [f"{C}.runAsUser: Invalid value: -1: {RANGE}"]),
    "a huge group": ({f"{C}.runAsGroup": 2**31}, [f"{C}.runAsGroup: Invalid value: 2147483648: {RANGE}"]),
    "a negative user of all": ({f"{P}.runAsUser": -1}, [f"{P}.runAsUser: Invalid value: -1: {RANGE}"]),
    "a negative group of files": ({f"{P}.fsGroup": -5}, [f"{P}.fsGroup: Invalid value: -5: {RANGE}"]),
    "a negative group beside": (
        {f"{P}.supplementalGroups": [1, -1]},
        [f"{P}.supplementalGroups[1]: Invalid value: -1: {RANGE}"],
    ),
    "a proc mount of a kind": (
        {f"{C}.procMount": "Bare"},
        [f'{C}.procMount: Unsupported value: "Bare": supported values: "Default", "Unmasked"'],
    ),
    "an unmasked proc among the host's users": (
        {f"{C}.procMount": "Unmasked"},
        [f'{C}.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'],
    ),
    "a seccomp profile of no type": (
        {f"{C}.seccompProfile": {}},
        [f"{C}.seccompProfile.type: Required value: type is required when seccompProfile is set"],
    ),
    "a seccomp profile of an odd type": (
        {f"{P}.seccompProfile": {"type": "Loose"}},
        [f'{P}.seccompProfile.type: Unsupported value: "Loose": {TYPES}'],
    ),
    "a seccomp profile on the node that is not named": (
        {f"{P}.seccompProfile": {"type": "Localhost"}},
        [f"{P}.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"],
    ),
    "a seccomp profile that climbs": (
        {f"{P}.seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}},
        [f"{P}.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'"],
    ),
    "a seccomp profile named for the default": (
        {f"{C}.seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}},
        [
            (
                f"{C}.seccompProfile.localhostProfile: Invalid value: "
                f'{{"type":"RuntimeDefault","localhostProfile":"x"}}: '
                "can only be set when seccomp type is Localhost"
            )
        ],
    ),
    "an apparmor profile of no type": (
        {f"{C}.appArmorProfile": {}},
        [f"{C}.appArmorProfile.type: Required value: type is required when appArmorProfile is set"],
    ),
    "an apparmor profile of an odd type": (
        {f"{C}.appArmorProfile": {"type": "x"}},
        [f'{C}.appArmorProfile.type: Unsupported value: "x": {TYPES}'],
    ),
    "an apparmor profile with spaces": (
        {f"{C}.appArmorProfile": {"type": "Localhost", "localhostProfile": " x"}},
        [f'{C}.appArmorProfile.localhostProfile: Invalid value: " x": must not be padded with whitespace'],
    ),
    "an apparmor profile without a name": (
        {f"{C}.appArmorProfile": {"type": "Localhost"}},
        [f"{C}.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"],
    ),
    "an apparmor profile named for the default": (
        {f"{P}.appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}},
        [f'{P}.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when AppArmor type is Localhost'],
    ),
    "an apparmor profile as long as a path": (
        {f"{P}.appArmorProfile": {"type": "Localhost", "localhostProfile": "x" * 4096}},
        [f"{P}.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"],
    ),
    "privileged without escalation": (
        {C: {"privileged": True, "allowPrivilegeEscalation": False}},
        [
            (
                f'{C}: Invalid value: {{"privileged":true,"allowPrivilegeEscalation":false}}: '
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            )
        ],
    ),
    "an administrator without escalation": (
        {C: {"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": False}},
        [
            (
                f'{C}: Invalid value: {{"capabilities":{{"add":["CAP_SYS_ADMIN"]}},"allowPrivilegeEscalation":false}}: '
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            )
        ],
    ),
    "a sysctl of no name": ({f"{P}.sysctls": [{"value": "1"}]}, [f"{P}.sysctls[0].name: Required value"]),
    "a sysctl in capitals": (
        {f"{P}.sysctls": [{"name": "Net.x", "value": "1"}]},
        [f'{P}.sysctls[0].name: Invalid value: "Net.x": {SYSCTL}'],
    ),
    "a sysctl twice": (
        {f"{P}.sysctls": [{"name": "kernel.sem", "value": "1"}, {"name": "kernel.sem", "value": "2"}]},
        [f'{P}.sysctls[1].name: Duplicate value: "kernel.sem"'],
    ),
    "a network sysctl for the host": (
        {f"{P}.sysctls": [{"name": "net/ipv4/ip_forward", "value": "1"}], "spec.hostNetwork": True},
        [
            (
                f'{P}.sysctls[0].name: Invalid value: "net/ipv4/ip_forward": '
                "may not be specified when 'hostNetwork' is true"
            )
        ],
    ),
    "an ipc sysctl for the host": (
        {f"{P}.sysctls": [{"name": "kernel.shmmax", "value": "1"}], "spec.hostIPC": True},
        [f"{P}.sysctls[0].name: Invalid value: \"kernel.shmmax\": may not be specified when 'hostIPC' is true"],
    ),
    "unknown policies": (
        {
            f"{P}.fsGroupChangePolicy": "Once",
            f"{P}.supplementalGroupsPolicy": "Add",
            f"{P}.seLinuxChangePolicy": "Fast",
        },
        [
            f'{P}.fsGroupChangePolicy: Unsupported value: "Once": supported values: "Always", "OnRootMismatch"',
            f'{P}.supplementalGroupsPolicy: Unsupported value: "Add": supported values: "Merge", "Strict"',
            f'{P}.seLinuxChangePolicy: Unsupported value: "Fast": supported values: "MountOption", "Recursive"',
        ],
    ),
    "windows options of nothing": (
        {f"{C}.windowsOptions": {"gmsaCredentialSpec": "", "runAsUserName": ""}},
        [
            f'{C}.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string',
            f'{C}.windowsOptions.runAsUserName: Invalid value: "": runAsUserName cannot be an empty string',
        ],
    ),
    "windows options on linux": (
        {f"{C}.windowsOptions": {"hostProcess": False}, f"{P}.windowsOptions": {}, "spec.os": {"name": "linux"}},
        [
            f"{P}.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            f"{C}.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
        ],
    ),
    "linux options on windows": (
        {
            f"{C}.capabilities": {},
            f"{P}.fsGroup": 1,
            "spec.hostPID": True,
            "spec.hostUsers": True,
            "spec.os": {"name": "windows"},
        },
        [
            f"{P}.fsGroup: Forbidden: cannot be set for a windows pod",
            f"{C}.capabilities: Forbidden: cannot be set for a windows pod",
            "spec.hostUsers: Forbidden: cannot be set for a windows pod",
            "spec.hostPID: Forbidden: cannot be set for a windows pod",
        ],
    ),
    "own users in the host's namespaces": (
        {
            "spec.hostUsers": False,
            "spec.hostNetwork": True,
            "spec.hostPID": True,
            "spec.hostIPC": True,
        },
        [
            "spec.hostNetwork: Forbidden: when `hostUsers` is false",
            "spec.HostPID: Forbidden: when `hostUsers` is false",
            "spec.HostIPC: Forbidden: when `hostUsers` is false",
        ],
    ),
    "processes shared with all": (
        {"spec.shareProcessNamespace": True, "spec.hostPID": True},
        ["spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_security_contexts_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({f"{C}.runAsUser": 0, f"{P}.runAsUser": 2**31 - 1}, id="the first and the last user"),
        pytest.param({C: {"privileged": True, "allowPrivilegeEscalation": True}}, id="privileged"),
        pytest.param({f"{C}.procMount": "Unmasked", "spec.hostUsers": False}, id="an unmasked proc among own users"),
        pytest.param({f"{P}.sysctls": [{"name": "net.core.somaxconn", "value": "1024"}]}, id="a sysctl of its own"),
        pytest.param(
            {f"{P}.seccompProfile": {"type": "Localhost", "localhostProfile": "profiles/audit.json"}}, id="a profile"
        ),
        pytest.param({"spec.shareProcessNamespace": True}, id="shared processes"),
    ],
)
def test_valid_security_contexts_are_accepted(changes, errors_of):
    assert errors_of(changes) == []

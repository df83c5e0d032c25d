import pytest

M = "spec.containers[0].volumeMounts"
D = "spec.containers[0].volumeDevices"
BLOCK = {"spec.volumes[1]": {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}}


def mount(name="data", path="/data", **fields):
    return {"name": name, "mountPath": path, **fields}


CASES = {
    "a volume that is not there": ({M: [mount("gone")]}, [f'{M}[0].name: Not found: "gone"']),
    "no volume": ({M: [mount("")]}, [f"{M}[0].name: Required value", f'{M}[0].name: Not found: ""']),
    "no path": ({M: [mount(path="")]}, [f"{M}[0].mountPath: Required value"]),
    "the same path twice": (
        {M: [mount(), mount()]},
        [f'{M}[1].mountPath: Invalid value: "/data": must be unique'],
    ),
    "a sub path from the root": (
        {M: [mount(subPath="/etc")]},
        [f'{M}.subPath: Invalid value: "/etc": must be a relative path'],
    ),
    "a sub path that climbs": (
        {M: [mount(subPath="a/../../b")]},
        [f"{M}.subPath: Invalid value: \"a/../../b\": must not contain '..'"],
    ),
    "a sub path and an expression": (
        {M: [mount(subPath="a", subPathExpr="$(B)")]},
        [f'{M}[0].subPathExpr: Invalid value: "$(B)": subPathExpr and subPath are mutually exclusive'],
    ),
    "an expression that climbs": (
        {M: [mount(subPathExpr="../$(B)")]},
        [f"{M}.subPathExpr: Invalid value: \"../$(B)\": must not contain '..'"],
    ),
    "an unknown propagation": (
        {M: [mount(mountPropagation="Both")]},
        [
            (
                f'{M}.mountPropagation: Unsupported value: "Both": '
                'supported values: "Bidirectional", "HostToContainer", "None"'
            )
        ],
    ),
    "propagation to the host without privilege": (
        {M: [mount(mountPropagation="Bidirectional")]},
        [
            (
                f"{M}.mountPropagation: Forbidden: Bidirectional mount propagation is available only to "
                "privileged containers"
            )
        ],
    ),
    "recursively read-only but writable": (
        {M: [mount(recursiveReadOnly="Enabled")]},
        [f"{M}.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"],
    ),
    "recursively read-only but propagated": (
        {M: [mount(recursiveReadOnly="IfPossible", readOnly=True, mountPropagation="HostToContainer")]},
        [f"{M}.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified"],
    ),
    "recursively read-only, somehow": (
        {M: [mount(recursiveReadOnly="Yes", readOnly=True)]},
        [f'{M}.recursiveReadOnly: Unsupported value: "Yes": supported values: "Disabled", "Enabled", "IfPossible"'],
    ),
    "a device of a file system": (
        {D: [{"name": "data", "devicePath": "/dev/x"}]},
        [
            (
                f'{D}[0].name: Invalid value: "data": '
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            )
        ],
    ),
    "a device of nothing": (
        {D: [{"name": "gone", "devicePath": "/dev/x"}]},
        [f'{D}[0].name: Not found: "gone"'],
    ),
    "a device without a path": (
        {**BLOCK, D: [{"name": "disk", "devicePath": ""}]},
        [f"{D}[0].devicePath: Required value"],
    ),
    "a device whose path climbs": (
        {**BLOCK, D: [{"name": "disk", "devicePath": "/dev/../x"}]},
        [f"{D}[0].devicePath: Invalid value: \"/dev/../x\": can not contain backsteps ('..')"],
    ),
    "a device twice": (
        {**BLOCK, D: [{"name": "disk", "devicePath": "/dev/x"}, {"name": "disk", "devicePath": "/dev/x"}]},
        [
            f'{D}[1].name: Invalid value: "disk": must be unique',
            f'{D}[1].devicePath: Invalid value: "/dev/x": must be unique',
        ],
    ),
    "a volume as device and as file system": (
        {**BLOCK, M: [mount("disk", "/x")], D: [{"name": "disk", "devicePath": "/x"}]},
        [
            f'{M}[0].name: Invalid value: "disk": must not already exist in volumeDevices',
            f'{M}[0].mountPath: Invalid value: "/x": must not already exist as a path in volumeDevices',
            f'{D}[0].name: Invalid value: "disk": must not already exist in volumeMounts',
            f'{D}[0].devicePath: Invalid value: "/x": must not already exist as a path in volumeMounts',
        ],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_mounts_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({M: [mount(), mount(path="/again", readOnly=True)]}, id="one volume in two places"),
        pytest.param({M: [mount(path="C:/data")]}, id="a drive letter"),
        pytest.param({M: [mount(subPath="a..b/c")]}, id="dots inside a name"),
        pytest.param({M: [mount(recursiveReadOnly="Enabled", readOnly=True)]}, id="recursively read-only"),
        pytest.param(
            {
                M: [mount(mountPropagation="Bidirectional")],
                "spec.containers[0].securityContext": {"privileged": True},
            },
            id="propagation to the host with privilege",
        ),
        pytest.param({**BLOCK, D: [{"name": "disk", "devicePath": "/dev/x"}]}, id="a block device"),
    ],
)
def test_valid_mounts_are_accepted(changes, errors_of):
    assert errors_of(changes) == []

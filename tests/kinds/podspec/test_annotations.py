import pytest

from podwire.kinds.builtin.core.pod import validate as pods

A = "metadata.annotations"
COST = "controller.kubernetes.io/pod-deletion-cost"
MIRROR = "kubernetes.io/config.mirror"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_MAIN = "container.seccomp.security.alpha.kubernetes.io/main"
ARMOR = "container.apparmor.security.beta.kubernetes.io/"
MAIN = "spec.containers[0].securityContext"

CASES = {
    "a mirror of nowhere": (
        {A: {MIRROR: "x"}},
        [f'{A}[{MIRROR}]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set'],
    ),
    "a cost that is not a number": (
        {A: {COST: "cheap"}},
        [f'{A}[{COST}]: Invalid value: "cheap": must be a 32bit integer'],
    ),
    "a cost with a plus": ({A: {COST: "+1"}}, [f'{A}[{COST}]: Invalid value: "+1": must be a 32bit integer']),
    "a cost beyond all": (
        {A: {COST: "2147483648"}},
        [f'{A}[{COST}]: Invalid value: "2147483648": must be a 32bit integer'],
    ),
    "an unknown seccomp profile": (
        {A: {SECCOMP: "strict"}},
        [f'{A}.{SECCOMP}: Invalid value: "strict": must be a valid seccomp profile'],
    ),
    "a seccomp profile that climbs": (
        {A: {SECCOMP_MAIN: "localhost/../x"}},
        [f"{A}.{SECCOMP_MAIN}: Invalid value: \"../x\": must not contain '..'"],
    ),
    "an apparmor profile for nobody": (
        {A: {ARMOR + "gone": "runtime/default"}},
        [f'{A}[{ARMOR}gone]: Invalid value: "gone": container not found'],
    ),
    "an unknown apparmor profile": (
        {A: {ARMOR + "main": "strict"}},
        [f'{A}[{ARMOR}main]: Invalid value: "strict": invalid AppArmor profile name: "strict"'],
    ),
    "two seccomp profiles": (
        {A: {SECCOMP: "unconfined"}, "spec.securityContext.seccompProfile": {"type": "RuntimeDefault"}},
        ["spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"],
    ),
    "two seccomp profiles of a container": (
        {
            A: {SECCOMP_MAIN: "localhost/a"},
            f"{MAIN}.seccompProfile": {"type": "Localhost", "localhostProfile": "b"},
        },
        [f"{MAIN}.seccompProfile.localhostProfile: Forbidden: seccomp profile in annotation and field must match"],
    ),
    "two apparmor profiles": (
        {A: {ARMOR + "main": "runtime/default"}, f"{MAIN}.appArmorProfile": {"type": "Unconfined"}},
        [f"{MAIN}.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"],
    ),
    "an apparmor profile against the pod's": (
        {A: {ARMOR + "main": "unconfined"}, "spec.securityContext.appArmorProfile": {"type": "RuntimeDefault"}},
        [f"{MAIN}.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_invalid_annotations_are_rejected(changes, expected, errors_of):
    assert errors_of(changes) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({A: {COST: "-2147483648"}}, id="the lowest cost"),
        pytest.param({A: {COST: "0"}}, id="no cost"),
        pytest.param({A: {MIRROR: "x"}, "spec.nodeName": "n"}, id="a mirror"),
        pytest.param(
            {A: {SECCOMP: "docker/default"}, "spec.securityContext.seccompProfile": {"type": "RuntimeDefault"}},
            id="a profile by both names",
        ),
    ],
)
def test_valid_annotations_are_accepted(changes, errors_of):
    assert errors_of(changes) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {"a": "b"}, [], id="any may be added"),
        pytest.param({"a": "b"}, {}, [], id="any may go"),
        pytest.param(
            {}, {MIRROR: "x"}, [f"{A}[{MIRROR}]: Forbidden: may not add mirror pod annotation"], id="a mirror"
        ),
        pytest.param(
            {MIRROR: "x"},
            {MIRROR: "y"},
            [f"{A}[{MIRROR}]: Forbidden: may not remove or update mirror pod annotation"],
            id="another mirror",
        ),
        pytest.param(
            {ARMOR + "main": "unconfined"},
            {},
            [f"{A}[{ARMOR}main]: Forbidden: may not remove or update AppArmor annotations"],
            id="no profile any more",
        ),
        pytest.param(
            {},
            {ARMOR + "main": "unconfined"},
            [f"{A}[{ARMOR}main]: Forbidden: may not add AppArmor annotations"],
            id="a profile",
        ),
        pytest.param({}, {COST: "x"}, [f'{A}[{COST}]: Invalid value: "x": must be a 32bit integer'], id="a bad cost"),
    ],
)
@pytest.mark.parametrize("update", [pods.update, pods.update_status], ids=["pod", "status"])
def test_annotations_that_mean_something_stay(old, new, expected, update, spoiled):
    before, after = (spoiled({A: item, "spec.nodeName": "n"}) for item in (old, new))
    assert [str(error) for error in update(after, before)] == expected

"""As whom a container runs, and what it is kept from."""

import pytest

from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.config.security import ImageUser, image_user, namespaces, security_context
from podwire.protocols.cri import cri_pb2 as pb

ROOT, BOB, NUMBERED = ImageUser(), ImageUser(uid=None, name="bob"), ImageUser(uid=1001)


def context_of(pod, user=ROOT, shared=None, **own):
    asked = pod({"securityContext": shared or {}}, container={"securityContext": own})
    return security_context(asked, asked.spec.containers[0], user, seccomp_root="/profiles")


@pytest.mark.parametrize(
    ("image", "user"),
    [
        (pb.Image(uid=pb.Int64Value(value=1001)), NUMBERED),
        (pb.Image(uid=pb.Int64Value(value=0)), ROOT),
        (pb.Image(username="bob"), BOB),
        (pb.Image(), ROOT),
    ],
    ids=["a number", "zero", "a name", "nothing is root"],
)
def test_the_user_of_an_image_is_read(image, user):
    assert image_user(image) == user


@pytest.mark.parametrize(
    ("shared", "own", "user", "uid", "gid", "name"),
    [
        pytest.param({}, {}, NUMBERED, 1001, None, "", id="the image's number"),
        pytest.param({}, {}, BOB, None, None, "bob", id="the image's name"),
        pytest.param({}, {}, ROOT, 0, None, "", id="root"),
        pytest.param({"runAsUser": 5}, {}, BOB, 5, None, "", id="the pod goes before the image"),
        pytest.param({"runAsUser": 5}, {"runAsUser": 0}, BOB, 0, None, "", id="the container goes before the pod"),
        pytest.param({"runAsGroup": 7}, {}, BOB, None, 7, "bob", id="the pod's group"),
        pytest.param({"runAsGroup": 7}, {"runAsGroup": 0}, ROOT, 0, 0, "", id="the container's group"),
    ],
)
def test_the_container_goes_before_its_pod_and_the_pod_before_the_image(pod, shared, own, user, uid, gid, name):
    context = context_of(pod, user, shared, **own)
    assert (context.run_as_user.value if context.HasField("run_as_user") else None) == uid
    assert (context.run_as_group.value if context.HasField("run_as_group") else None) == gid
    assert context.run_as_username == name


WHOSE = '(pod: "web_shop(uid-1)", container: main)'


@pytest.mark.parametrize(
    ("shared", "own", "user", "problem"),
    [
        pytest.param(
            {}, {"runAsNonRoot": True}, ROOT, "container has runAsNonRoot and image will run as root", id="root's image"
        ),
        pytest.param(
            {"runAsNonRoot": True}, {}, BOB,
            "container has runAsNonRoot and image has non-numeric user (bob), cannot verify user is non-root",
            id="a name may be root's",
        ),
        pytest.param(
            {"runAsNonRoot": True}, {"runAsUser": 0}, NUMBERED, "container's runAsUser breaks non-root policy",
            id="root on purpose",
        ),
        pytest.param(
            {"runAsNonRoot": True}, {}, ImageUser(uid=2**31),
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): "
            "must be between 0 and 2147483647, inclusive",
            id="no uid at all",
        ),
    ],
)  # fmt: skip
def test_run_as_non_root_rejects_root(pod, shared, own, user, problem):
    with pytest.raises(ConfigError) as raised:
        context_of(pod, user, shared, **own)
    assert str(raised.value) == f"{problem} {WHOSE}"


@pytest.mark.parametrize(
    ("shared", "own", "user"),
    [
        ({"runAsNonRoot": True}, {}, NUMBERED),
        ({"runAsNonRoot": True}, {"runAsUser": 5}, ROOT),
        ({"runAsNonRoot": True, "runAsUser": 5}, {}, BOB),
        ({"runAsNonRoot": True}, {"runAsNonRoot": False}, ROOT),
        ({}, {"runAsNonRoot": False}, ROOT),
    ],
)
def test_run_as_non_root_accepts_other_users(pod, shared, own, user):
    assert context_of(pod, user, shared, **own)


@pytest.mark.parametrize(
    ("shared", "own", "kind", "place"),
    [
        pytest.param({}, {}, "Unconfined", "", id="nobody says anything"),
        pytest.param({"type": "RuntimeDefault"}, {}, "RuntimeDefault", "", id="the pod says it"),
        pytest.param({"type": "RuntimeDefault"}, {"type": "Unconfined"}, "Unconfined", "", id="the container says it"),
        pytest.param(
            {}, {"type": "Localhost", "localhostProfile": "a/b.json"}, "Localhost", "/profiles/a/b.json", id="a file"
        ),
    ],
)  # fmt: skip
def test_seccomp(pod, shared, own, kind, place):
    profile = context_of(
        pod, shared={"seccompProfile": shared} if shared else {}, **({"seccompProfile": own} if own else {})
    ).seccomp
    assert (pb.SecurityProfile.ProfileType.Name(profile.profile_type), profile.localhost_ref) == (kind, place)


def test_a_profile_of_the_node_must_be_named(pod):
    with pytest.raises(ConfigError, match=r"localhostProfile must be set if seccompProfile type is Localhost\."):
        context_of(pod, seccompProfile={"type": "Localhost"})


def test_apparmor_is_unset_unless_the_pod_names_a_profile(pod):
    assert not context_of(pod).HasField("apparmor")
    assert context_of(pod, shared={"appArmorProfile": {"type": "RuntimeDefault"}}).HasField("apparmor")
    unconfined = context_of(
        pod, shared={"appArmorProfile": {"type": "RuntimeDefault"}}, appArmorProfile={"type": "Unconfined"}
    )
    assert unconfined.apparmor.profile_type == pb.SecurityProfile.Unconfined


@pytest.mark.parametrize(("said", "denied"), [(None, False), (True, False), (False, True)])
def test_new_privileges_are_denied_only_if_asked(pod, said, denied):
    own = {} if said is None else {"allowPrivilegeEscalation": said}
    assert context_of(pod, **own).no_new_privs == denied


def test_an_unmasked_proc_hides_nothing(pod):
    context = context_of(pod, procMount="Unmasked")
    assert (list(context.masked_paths), list(context.readonly_paths)) == ([], [])
    assert context_of(pod, procMount="Default").masked_paths


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("POD", "CONTAINER", "POD")),
        ({"hostNetwork": True, "hostPID": True, "hostIPC": True}, ("NODE", "NODE", "NODE")),
        ({"shareProcessNamespace": True}, ("POD", "POD", "POD")),
        ({"shareProcessNamespace": True, "hostPID": True}, ("POD", "NODE", "POD")),
    ],
)
def test_namespaces(pod, spec, expected):
    found = namespaces(pod(spec))
    assert tuple(map(pb.NamespaceMode.Name, (found.network, found.pid, found.ipc))) == expected


def test_groups(pod):
    assert list(context_of(pod, shared={"supplementalGroups": [1, 2]}).supplemental_groups) == [1, 2]
    assert list(context_of(pod, shared={"fsGroup": 0, "supplementalGroups": [1]}).supplemental_groups) == [0, 1]
    with pytest.raises(ConfigError, match="unsupported supplementalGroupsPolicy: Some"):
        context_of(pod, shared={"supplementalGroupsPolicy": "Some"})


def test_capabilities_are_asked_for_as_they_are_written(pod):
    assert not context_of(pod).HasField("capabilities")
    found = context_of(pod, capabilities={"add": ["NET_ADMIN", "SYS_TIME"], "drop": ["ALL"]}).capabilities
    assert (list(found.add_capabilities), list(found.drop_capabilities)) == (["NET_ADMIN", "SYS_TIME"], ["ALL"])

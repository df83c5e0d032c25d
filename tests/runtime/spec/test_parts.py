"""Capabilities, seccomp, users and mounts of a specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.linux.fs.values import Mount as HostMount
from podwire.linux.proc.seccomp import compile_profile
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.containers.seccomp import COMPILED, with_compiled_seccomp
from podwire.runtime.spec.apparmor import apparmor_profile
from podwire.runtime.spec.capabilities import ALL, DEFAULT, capabilities, capability_names
from podwire.runtime.spec.mounts import check_mounts, clean_path, requested_mounts, root_propagation
from podwire.runtime.spec.seccomp import default_profile, parse_profile, profile
from podwire.runtime.spec.seccomp_calls import REFUSED
from podwire.runtime.spec.users import Accounts, User, user_of

ACCOUNTS = Accounts(
    "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/:/bin/false\nbroken:x\nodd:x:x:y::\n",
    "root:x:0:\nweb:x:34:\nextra:x:50:web,other\nmore:x:51:web\nbad:x:z:web\n",
)


def security(add=(), drop=(), ambient=(), **fields):
    asked = pb.Capability(add_capabilities=add, drop_capabilities=drop, add_ambient_capabilities=ambient)
    return pb.LinuxContainerSecurityContext(capabilities=asked, **fields)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        pytest.param(security(), DEFAULT, id="nothing"),
        pytest.param(security(add=["NET_RAW"]), DEFAULT | {"CAP_NET_RAW"}, id="one more"),
        pytest.param(security(add=["cap_net_raw"]), DEFAULT | {"CAP_NET_RAW"}, id="in small letters"),
        pytest.param(security(drop=["ALL"]), set(), id="none"),
        pytest.param(security(drop=["ALL"], add=["KILL"]), {"CAP_KILL"}, id="only one"),
        pytest.param(security(add=["ALL"], drop=["SYS_ADMIN"]), set(ALL) - {"CAP_SYS_ADMIN"}, id="all but one"),
        pytest.param(security(drop=["CHOWN"]), DEFAULT - {"CAP_CHOWN"}, id="one less"),
        pytest.param(security(privileged=True), set(ALL), id="privileged"),
    ],
)
def test_capabilities(asked, wanted):
    found = capabilities(asked, available=ALL)
    assert set(found["effective"]) == set(found["bounding"]) == set(found["permitted"]) == set(wanted)
    assert "ambient" not in found


def test_capabilities_that_the_host_lacks_are_left_out():
    assert capabilities(security(privileged=True), available=["CAP_KILL"])["effective"] == ["CAP_KILL"]


def test_ambient_capabilities_are_inheritable():
    found = capabilities(security(ambient=["NET_ADMIN"]), available=ALL)
    assert found["ambient"] == found["inheritable"] == ["CAP_NET_ADMIN"]
    assert "CAP_NET_ADMIN" in found["permitted"]


def test_a_capability_that_does_not_exist_is_named():
    with pytest.raises(InvalidArgument, match="add_capabilities: 'FLY'"):
        capabilities(security(add=["FLY"]), available=ALL)


def test_masks_are_read_by_number():
    assert capability_names(0b101) == ["CAP_CHOWN", "CAP_DAC_READ_SEARCH"]
    assert capability_names((1 << len(ALL)) - 1) == list(ALL)


def actions(kept, machine="x86_64"):
    """The action and errno of each call that is decided by its name alone."""
    asked = pb.LinuxContainerSecurityContext(seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault))
    rules = [rule for rule in profile(asked, kept, machine)["syscalls"] if "args" not in rule]
    return {name: (rule["action"], rule.get("errnoRet")) for rule in rules for name in rule["names"]}


ALLOW, REFUSE, UNKNOWN = ("SCMP_ACT_ALLOW", None), ("SCMP_ACT_ERRNO", 1), ("SCMP_ACT_ERRNO", 38)


def test_the_default_profile_opens_with_capabilities():
    plain = actions([])
    assert {plain[name] for name in ("mount", "unshare", "setns", "bpf", "chroot", *REFUSED)} == {REFUSE}
    assert {plain[name] for name in ("read", "execve", "ptrace", "arch_prctl")} == {ALLOW}
    assert plain["clone3"] == UNKNOWN
    admin = actions(["CAP_SYS_ADMIN"])
    assert {admin[name] for name in ("mount", "unshare", "clone", "clone3", "bpf")} == {ALLOW}
    assert {actions(ALL)[name] for name in REFUSED} == {REFUSE}
    assert actions(["CAP_SYS_CHROOT"])["chroot"] == ALLOW
    assert "arch_prctl" not in actions([], "aarch64")


def test_the_default_profile_refuses_calls_that_it_does_not_name():
    for kept in ([], ALL):
        made = default_profile(kept, "x86_64")
        assert (made["defaultAction"], made["defaultErrnoRet"]) == UNKNOWN


def test_no_system_call_has_two_rules():
    for kept in ([], ["CAP_SYS_ADMIN"], ALL):
        rules = default_profile(kept, "x86_64")["syscalls"]
        names = [name for rule in rules if "args" not in rule for name in rule["names"]]
        assert len(names) == len(set(names))


def test_the_compiled_default_profile_is_a_filter_that_the_kernel_takes():
    program = compile_profile(default_profile(DEFAULT, "x86_64"))
    if program is None:
        pytest.skip("libseccomp.so.2 is not installed")
    assert len(program) % 8 == 0
    assert 100 < len(program) // 8 < 4096


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"flags": ["SECCOMP_FILTER_FLAG_LOG"]}, id="flags"),
        pytest.param({"listenerPath": "/run/x"}, id="a listener"),
        pytest.param({"defaultAction": "SCMP_ACT_NOTIFY"}, id="an action for a listener"),
        pytest.param({"syscalls": [{"names": ["read"], "action": "SCMP_ACT_TRACE"}]}, id="an action for a tracer"),
    ],
)
def test_a_profile_that_needs_more_than_a_filter_is_left_to_the_oci_runtime(changes):
    assert compile_profile({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [], **changes}) is None


def test_the_filter_is_compiled_from_the_profile_that_nri_plugins_changed():
    spec = {"annotations": {"a": "b", COMPILED: "old"}, "linux": {"seccomp": default_profile(DEFAULT, "x86_64")}}
    first = with_compiled_seccomp(spec)["annotations"]
    changed = {**spec, "linux": {"seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}}}
    second = with_compiled_seccomp(changed)["annotations"]
    assert first.get(COMPILED) != "old"
    assert first.get(COMPILED) != second.get(COMPILED) or COMPILED not in first
    assert with_compiled_seccomp({**spec, "linux": {}})["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(pb.LinuxContainerSecurityContext(), id="none asked"),
        pytest.param(security(privileged=True), id="privileged"),
        pytest.param(
            pb.LinuxContainerSecurityContext(seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.Unconfined)),
            id="unconfined",
        ),
    ],
)
def test_no_profile(asked):
    assert profile(asked, [], "x86_64") is None


def test_a_profile_by_the_deprecated_path_is_refused():
    with pytest.raises(InvalidArgument, match="seccomp_profile_path"):
        profile(pb.LinuxContainerSecurityContext(seccomp_profile_path="localhost/x"), [], "x86_64")


def test_values_of_a_localhost_profile_are_bounded():
    text = b'{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["socket"],"action":"SCMP_ACT_ERRNO","args":[%s]}]}'
    argument = b'{"index":0,"value":%d,"op":"SCMP_CMP_EQ"}'
    assert parse_profile(text % (argument % (2**64 - 1)), "field")["syscalls"][0]["args"][0]["value"] == 2**64 - 1
    with pytest.raises(InvalidArgument, match="larger than"):
        parse_profile(text % (argument % 2**64), "field")


def user(image="", **fields):
    asked = pb.LinuxContainerSecurityContext()
    for name, value in fields.items():
        if name in ("run_as_user", "run_as_group"):
            getattr(asked, name).value = value
        elif name == "supplemental_groups":
            asked.supplemental_groups.extend(value)
        else:
            setattr(asked, name, value)
    return user_of(asked, image, ACCOUNTS)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(user, User(0, 0, (0,)), id="root"),
        pytest.param(lambda: user("web"), User(33, 34, (34, 50, 51)), id="the image's, with its groups"),
        pytest.param(lambda: user("33"), User(33, 34, (34, 50, 51)), id="by number"),
        pytest.param(lambda: user("77"), User(77, 0, (0,)), id="a number that has no name"),
        pytest.param(lambda: user("web:extra"), User(33, 50, (50, 51)), id="with a group"),
        pytest.param(lambda: user("web:7"), User(33, 7, (7, 50, 51)), id="with a group's number"),
        pytest.param(lambda: user("web", run_as_user=5), User(5, 0, (0,)), id="the pod's before the image's"),
        pytest.param(lambda: user(run_as_username="web"), User(33, 34, (34, 50, 51)), id="the pod's by name"),
        pytest.param(lambda: user(run_as_user=5, run_as_group=6), User(5, 6, (6,)), id="with a group of the pod's"),
        pytest.param(
            lambda: user("web", supplemental_groups=[9, 34], supplemental_groups_policy=1),
            User(33, 34, (34, 9)),
            id="only the pod's groups",
        ),
    ],
)
def test_users(found, wanted):
    assert found() == wanted


@pytest.mark.parametrize(
    ("image", "fields", "words"),
    [
        ("", {"run_as_group": 5}, "run_as_group"),
        ("", {"run_as_user": -1}, "run_as_user"),
        ("", {"run_as_user": 2**32 - 1}, "run_as_user"),
        (str(2**32), {}, "user"),
        ("odd", {}, "'odd'"),
        ("web:nobody", {}, "'nobody'"),
        ("9" * 5000, {}, "user: '9999"),
        ("0:" + "9" * 5000, {}, "group: '9999"),
        ("\u0663", {}, "user"),
        ("", {"run_as_username": "ghost"}, "'ghost'"),
    ],
)
def test_users_that_cannot_be(image, fields, words):
    with pytest.raises(InvalidArgument, match=words):
        user(image, **fields)


def test_mounts_are_made_from_shallow_to_deep_with_their_modes():
    asked = [
        pb.Mount(host_path="/a", container_path="/x/y", readonly=True),
        pb.Mount(host_path="/b", container_path="/x", propagation=pb.PROPAGATION_BIDIRECTIONAL),
        pb.Mount(host_path="/c", container_path="/x/y/z", readonly=True, recursive_read_only=True),
    ]
    assert [(mount["destination"], mount["options"]) for mount in requested_mounts(asked)] == [
        ("/x", ["rbind", "rshared", "rw"]),
        ("/x/y", ["rbind", "rprivate", "ro"]),
        ("/x/y/z", ["rbind", "rprivate", "rro"]),
    ]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (pb.Mount(host_path="/a", container_path="x"), r"mounts\[0\].container_path"),
        (pb.Mount(host_path="a", container_path="/x"), r"mounts\[0\].host_path"),
        (pb.Mount(host_path="/a/../b", container_path="/x"), "host_path"),
        (pb.Mount(host_path="/a", container_path="/x", recursive_read_only=True), "recursive_read_only"),
        (
            pb.Mount(host_path="/a", container_path="/x", readonly=True, recursive_read_only=True, propagation=1),
            "recursive_read_only",
        ),
        (pb.Mount(host_path="/a", container_path="/x", uidMappings=[pb.IDMapping()]), "uidMappings"),
    ],
)
def test_mounts_that_cannot_be(asked, field):
    with pytest.raises(InvalidArgument, match=field):
        requested_mounts([asked])


@pytest.mark.parametrize(
    ("propagations", "wanted"), [([], None), ([0], None), ([0, 1], "rslave"), ([1, 2, 0], "rshared"), ([2], "rshared")]
)
def test_the_root_has_the_widest_propagation_of_its_mounts(propagations, wanted):
    assert root_propagation([pb.Mount(propagation=item) for item in propagations]) == wanted


@given(st.text(max_size=40))
def test_a_clean_path_is_absolute_and_never_climbs(path):
    try:
        found = clean_path(path, "field")
    except InvalidArgument:
        return
    assert found.startswith("/")
    assert ".." not in found.split("/")
    assert "\0" not in found


def test_numbers_of_any_length_in_an_images_accounts_are_ignored():
    accounts = Accounts(f"web:x:{'9' * 5000}:0::/:\nweb:x:33:34::/:\n", f"big:x:{'9' * 5000}:web\nweb:x:50:web\n")
    assert user_of(pb.LinuxContainerSecurityContext(), "web", accounts) == User(33, 34, (34, 50))


def apparmor(**fields):
    return pb.LinuxContainerSecurityContext(**fields)


LOCALHOST = pb.SecurityProfile(profile_type=pb.SecurityProfile.Localhost, localhost_ref="mine")


@pytest.mark.parametrize(
    ("security", "name"),
    [
        pytest.param(apparmor(), "", id="none"),
        pytest.param(apparmor(apparmor=LOCALHOST), "mine", id="by name"),
        pytest.param(apparmor(apparmor=LOCALHOST, privileged=True), "", id="privileged"),
        pytest.param(apparmor(apparmor_profile="localhost/mine"), "mine", id="by the deprecated field"),
        pytest.param(apparmor(apparmor_profile="unconfined"), "", id="unconfined"),
        pytest.param(apparmor(apparmor=LOCALHOST, apparmor_profile="localhost/other"), "mine", id="both"),
        pytest.param(
            apparmor(apparmor=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault)),
            "podwire-default",
            id="the default",
        ),
    ],
)
def test_an_apparmor_profile_is_passed_by_name(security, name):
    assert apparmor_profile(security, {"mine", "podwire-default"}) == name


def test_an_apparmor_profile_that_is_not_loaded_is_refused():
    with pytest.raises(InvalidArgument, match="'mine' is not loaded"):
        apparmor_profile(apparmor(apparmor=LOCALHOST), {"other"})
    with pytest.raises(InvalidArgument, match="has no AppArmor"):
        apparmor_profile(apparmor(apparmor=LOCALHOST), None)


def host_mount(target, *propagation):
    return HostMount(1, 0, "0:1", "/", target, ("rw",), propagation, "tmpfs", "tmpfs", ())


@pytest.mark.parametrize(
    ("path", "propagation", "is_accepted"),
    [
        ("/x", 2, False), ("/x", 1, False), ("/x", 0, True), ("/run/x", 2, True), ("/run/x", 1, True),
        ("/run/slave/x", 2, False), ("/run/slave/x", 1, True), ("/running", 2, False), ("/var/run/x", 2, True),
    ],
)  # fmt: skip
def test_propagation_is_that_of_the_mount_below_which_a_path_is(path, propagation, is_accepted):
    points = [host_mount("/"), host_mount("/run", "shared:1"), host_mount("/run/slave", "master:1")]
    mounts = [pb.Mount(host_path=path, container_path="/x", propagation=propagation)]

    def check():
        check_mounts(mounts, points, recursive_read_only=True, resolve=lambda path: path.removeprefix("/var"))

    if is_accepted:
        check()
        return
    with pytest.raises(InvalidArgument, match="propagation"):
        check()

"""The built-in validator: what it refuses, in whose name."""

from dataclasses import dataclass, fields, replace

import pytest

from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.merge import Merger
from podwire.protocols.nri.validation import default_verdict


@dataclass(frozen=True)
class Rules:
    enable: bool = True
    reject_oci_hook_adjustment: bool = False
    reject_runtime_default_seccomp_adjustment: bool = False
    reject_unconfined_seccomp_adjustment: bool = False
    reject_custom_seccomp_adjustment: bool = False
    reject_namespace_adjustment: bool = False
    reject_sysctl_adjustment: bool = False


def request(*answers: pb.ContainerAdjustment, profile: int | None = None) -> pb.ValidateContainerAdjustmentRequest:
    container = pb.Container(id="c")
    if profile is not None:
        container.linux.seccomp_profile.profile_type = profile
    merged = Merger(pb.CreateContainerRequest(container=container))
    for number, each in enumerate(answers, 1):
        merged.add(f"{number}0-p", pb.CreateContainerResponse(adjust=each))
    return pb.ValidateContainerAdjustmentRequest(container=container, adjust=merged.adjust, owners=merged.owners)


def hook() -> pb.ContainerAdjustment:
    return pb.ContainerAdjustment(hooks=pb.Hooks(poststop=[pb.Hook(path="/h")]))


def seccomp() -> pb.ContainerAdjustment:
    policy = pb.LinuxSeccomp(default_action="SCMP_ACT_ALLOW")
    return pb.ContainerAdjustment(linux=pb.LinuxContainerAdjustment(seccomp_policy=policy))


def namespace(kind: str) -> pb.ContainerAdjustment:
    return pb.ContainerAdjustment(linux=pb.LinuxContainerAdjustment(namespaces=[pb.LinuxNamespace(type=kind)]))


def sysctl(key: str) -> pb.ContainerAdjustment:
    return pb.ContainerAdjustment(linux=pb.LinuxContainerAdjustment(sysctl={key: "1"}))


PROFILE = pb.SecurityProfile
VERDICTS = [
    pytest.param(
        "reject_oci_hook_adjustment", request(hook()),
        'plugin "10-p" attempted restricted OCI hook injection', id="hook",
    ),
    pytest.param(
        "reject_oci_hook_adjustment", request(hook(), hook()),
        'plugins "10-p,20-p" attempted restricted OCI hook injection', id="hooks",
    ),
    pytest.param(
        "reject_unconfined_seccomp_adjustment", request(seccomp()),
        "plugin 10-p attempted restricted unconfined seccomp policy adjustment", id="no seccomp profile",
    ),
    pytest.param(
        "reject_unconfined_seccomp_adjustment", request(seccomp(), profile=PROFILE.UNCONFINED),
        "plugin 10-p attempted restricted unconfined seccomp policy adjustment", id="unconfined seccomp",
    ),
    pytest.param(
        "reject_runtime_default_seccomp_adjustment", request(seccomp(), profile=PROFILE.RUNTIME_DEFAULT),
        "plugin 10-p attempted restricted runtime default seccomp policy adjustment", id="default seccomp",
    ),
    pytest.param(
        "reject_custom_seccomp_adjustment", request(seccomp(), profile=PROFILE.LOCALHOST),
        "plugin 10-p attempted restricted custom seccomp policy adjustment", id="custom seccomp",
    ),
    pytest.param(
        "reject_namespace_adjustment", request(namespace("-pid"), namespace("ipc")),
        'attempted restricted namespace adjustment by plugin(s) "20-p" (namespace "ipc"), "10-p" (namespace "pid")',
        id="namespaces",
    ),
    pytest.param(
        "reject_sysctl_adjustment", request(sysctl("net.b"), sysctl("net.a")),
        "attempted restricted sysctl adjustment by plugin(s) 20-p, 10-p", id="sysctl",
    ),
    pytest.param(
        "reject_sysctl_adjustment", request(sysctl("-net.b")),
        "attempted restricted sysctl adjustment by plugin(s) 10-p", id="removal of a sysctl",
    ),
]  # fmt: skip


def test_every_rule_is_tested_here():
    assert {verdict.values[0] for verdict in VERDICTS} == {field.name for field in fields(Rules)} - {"enable"}


@pytest.mark.parametrize(("rule", "asked", "verdict"), VERDICTS)
def test_a_validation_rule_rejects_only_when_enabled(rule, asked, verdict):
    on = replace(Rules(), **{rule: True})
    assert default_verdict(on, asked) == verdict
    assert default_verdict(replace(on, enable=False), asked) == ""
    every_other = {field.name: field.name != rule for field in fields(Rules)}
    assert default_verdict(Rules(**every_other), asked) == ""


def test_adjustments_without_a_rule_are_accepted():
    every = Rules(**{field.name: True for field in fields(Rules)})
    adjust = pb.ContainerAdjustment(annotations={"a": "b"}, env=[pb.KeyValue(key="A")], args=["b"])
    assert default_verdict(every, request(adjust)) == ""
    assert default_verdict(every, pb.ValidateContainerAdjustmentRequest()) == ""

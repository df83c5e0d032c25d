"""The checks of the Pod Security Standards, in upstream's words."""

import pytest

from podwire.apiserver.admission.pod_security.evaluation import checks_of, detail, evaluate
from podwire.apiserver.admission.pod_security.levels import LATEST, Level, LevelVersion

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def pod(*containers, **spec):
    return {"containers": list(containers) or [container()], **spec}


def container(name="a", **security):
    return {"name": name, "image": "x", **({"securityContext": security} if security else {})}


def safe(name="a", **security):
    return container(name, **{**RESTRICTED, **security})


def judged(level, spec, minor=LATEST, annotations=None):
    metadata = {"name": "p", "annotations": annotations or {}}
    return detail(evaluate(LevelVersion(level, minor), metadata, spec))


BASELINE_CASES = {
    "host namespaces": (
        pod(hostNetwork=True, hostPID=True, hostIPC=True),
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    ),
    "privileged": (
        pod(container(privileged=True), container("b", privileged=True)),
        'privileged (containers "a", "b" must not set securityContext.privileged=true)',
    ),
    "privileged init container": (
        pod(initContainers=[container("init", privileged=True)]),
        'privileged (container "init" must not set securityContext.privileged=true)',
    ),
    "privileged ephemeral container": (
        pod(ephemeralContainers=[container("debug", privileged=True)]),
        'privileged (container "debug" must not set securityContext.privileged=true)',
    ),
    "capabilities": (
        pod(container(capabilities={"add": ["NET_RAW", "CHOWN", "BPF"]})),
        (
            'non-default capabilities (container "a" must not include "BPF", "NET_RAW" '
            "in securityContext.capabilities.add)"
        ),
    ),
    "hostPath": (
        pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/"}}]),
        'hostPath volumes (volumes "v", "w")',
    ),
    "hostPort": (
        pod({"name": "a", "image": "x", "ports": [{"containerPort": 1, "hostPort": 80}, {"hostPort": 443}]}),
        'hostPort (container "a" uses hostPorts 443, 80)',
    ),
    "hosts of probes and hooks": (
        pod(
            {
                "name": "b",
                "image": "x",
                "livenessProbe": {"httpGet": {"host": "example.com", "port": 1}},
                "lifecycle": {"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 1}}},
            },
            {"name": "a", "image": "x", "readinessProbe": {"tcpSocket": {"host": "example.com", "port": 1}}},
        ),
        'probe or lifecycle host (containers "a", "b" use probe or lifecycle hosts "10.0.0.1", "example.com")',
    ),
    "AppArmor": (
        pod(container(appArmorProfile={"type": "Unconfined"}), securityContext={"appArmorProfile": {"type": "Other"}}),
        (
            "forbidden AppArmor profiles "
            '(pod and container "a" must not set AppArmor profile type to "Other", "Unconfined")'
        ),
    ),
    "procMount": (
        pod(container(procMount="Unmasked")),
        'procMount (container "a" must not set securityContext.procMount to "Unmasked")',
    ),
    "SELinux": (
        pod(
            container(seLinuxOptions={"type": "spc_t", "user": "u"}), securityContext={"seLinuxOptions": {"role": "r"}}
        ),
        (
            'seLinuxOptions (pod and container "a" set forbidden securityContext.seLinuxOptions: '
            'type "spc_t"; user may not be set; role may not be set)'
        ),
    ),
    "seccomp": (
        pod(
            container(seccompProfile={"type": "Unconfined"}), securityContext={"seccompProfile": {"type": "Unconfined"}}
        ),
        'seccompProfile (pod and container "a" must not set securityContext.seccompProfile.type to "Unconfined")',
    ),
    "sysctls": (
        pod(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem"}, {"name": "kernel.msgmax"}, {"name": "x.y"}]}),
        "forbidden sysctls (kernel.msgmax, x.y)",
    ),
    "Windows host process": (
        pod(container(windowsOptions={"hostProcess": True}), securityContext={"windowsOptions": {"hostProcess": True}}),
        'hostProcess (pod and container "a" must not set securityContext.windowsOptions.hostProcess=true)',
    ),
}


@pytest.mark.parametrize("name", BASELINE_CASES)
def test_baseline_forbids_known_escalations(name):
    spec, words = BASELINE_CASES[name]
    assert judged(Level.BASELINE, spec) == words
    assert judged(Level.PRIVILEGED, spec) == ""


RESTRICTED_CASES = {
    "nothing set": (
        pod(),
        (
            "allowPrivilegeEscalation != false "
            '(container "a" must set securityContext.allowPrivilegeEscalation=false), '
            'unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), '
            'runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), '
            'seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to '
            '"RuntimeDefault" or "Localhost")'
        ),
    ),
    "added capabilities": (
        pod(safe(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE", "CHOWN"]})),
        'unrestricted capabilities (container "a" must not include "CHOWN" in securityContext.capabilities.add)',
    ),
    "kept and added capabilities": (
        pod(safe(capabilities={"drop": ["CHOWN"], "add": ["BPF"]})),
        (
            'unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; '
            'container "a" must not include "BPF" in securityContext.capabilities.add)'
        ),
    ),
    "volumes": (
        pod(
            safe(),
            volumes=[
                {"name": "c", "configMap": {"name": "c"}},
                {"name": "h", "hostPath": {"path": "/"}},
                {"name": "n", "nfs": {}},
                {"name": "u"},
            ],
        ),
        'restricted volume types (volumes "h", "n", "u" use restricted volume types "hostPath", "nfs", "unknown")',
    ),
    "root by flag": (
        pod(safe(runAsNonRoot=False), securityContext={"runAsNonRoot": False}),
        'runAsNonRoot != true (pod and container "a" must not set securityContext.runAsNonRoot=false)',
    ),
    "root by number": (
        pod(safe(runAsUser=0), securityContext={"runAsUser": 0}),
        'runAsUser=0 (pod and container "a" must not set runAsUser=0)',
    ),
    "unconfined": (
        pod(safe(seccompProfile={"type": "Unconfined"})),
        'seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")',
    ),
    "baseline first, each by name": (
        pod(safe(procMount="Unmasked", runAsUser=0), hostPID=True),
        (
            "host namespaces (hostPID=true), "
            'procMount (container "a" must not set securityContext.procMount to "Unmasked"), '
            'runAsUser=0 (container "a" must not set runAsUser=0)'
        ),
    ),
}


@pytest.mark.parametrize("name", RESTRICTED_CASES)
def test_restricted_requires_hardening(name):
    spec, words = RESTRICTED_CASES[name]
    assert judged(Level.RESTRICTED, spec) == words


def test_a_hardened_pod_is_restricted():
    shared = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}
    own = container(allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]})
    assert judged(Level.RESTRICTED, pod(own, securityContext=shared)) == ""
    assert judged(Level.RESTRICTED, pod(safe())) == ""


def test_user_namespaces_relax_what_root_may_do_since_1_35():
    spec = pod(safe(runAsUser=0, runAsNonRoot=False), hostUsers=False)
    assert judged(Level.RESTRICTED, spec) == ""
    assert judged(Level.RESTRICTED, spec, 34) == (
        'runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false), '
        'runAsUser=0 (container "a" must not set runAsUser=0)'
    )


def test_user_namespaces_relax_the_proc_mount_of_baseline_only():
    spec = pod(safe(procMount="Unmasked"), hostUsers=False)
    assert judged(Level.BASELINE, spec) == ""
    assert judged(Level.BASELINE, spec, 34).startswith("procMount")
    assert judged(Level.RESTRICTED, spec).startswith("procMount")


def test_windows_pods_need_no_linux_hardening_since_1_25():
    spec = pod(container(runAsNonRoot=True), os={"name": "windows"})
    assert judged(Level.RESTRICTED, spec) == ""
    assert judged(Level.RESTRICTED, spec, 24).startswith("allowPrivilegeEscalation != false")


@pytest.mark.parametrize(
    ("sysctl", "since"),
    [
        ("net.ipv4.tcp_syncookies", 0),
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_wmem", 32),
    ],
)
def test_versions_add_sysctls(sysctl, since):
    spec = pod(securityContext={"sysctls": [{"name": sysctl}]})
    assert judged(Level.BASELINE, spec, since) == ""
    if since:
        assert judged(Level.BASELINE, spec, since - 1) == f"forbidden sysctls ({sysctl})"


def test_seccomp_was_an_annotation_before_1_19():
    annotations = {
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
        "container.seccomp.security.alpha.kubernetes.io/a": "localhost/x",
        "container.seccomp.security.alpha.kubernetes.io/other": "unconfined",
    }
    words = 'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    assert judged(Level.BASELINE, pod(), 18, annotations) == words
    assert judged(Level.BASELINE, pod(), 19, annotations) == ""


def test_apparmor_annotations_count_in_every_version():
    annotations = {"container.apparmor.security.beta.kubernetes.io/a": "unconfined"}
    assert judged(Level.BASELINE, pod(), annotations=annotations) == (
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        '"container.apparmor.security.beta.kubernetes.io/a="unconfined"")'
    )


def test_selinux_type_of_container_engines_is_allowed_since_1_31():
    spec = pod(container(seLinuxOptions={"type": "container_engine_t"}))
    assert judged(Level.BASELINE, spec, 31) == ""
    assert judged(Level.BASELINE, spec, 30).startswith("seLinuxOptions")


def test_hosts_of_probes_are_checked_since_1_34():
    spec = BASELINE_CASES["hosts of probes and hooks"][0]
    assert judged(Level.BASELINE, spec, 33) == ""


def test_future_versions_mean_the_newest_known_one():
    assert checks_of(LevelVersion(Level.RESTRICTED, 99)) == checks_of(LevelVersion(Level.RESTRICTED, LATEST))
    assert len(checks_of(LevelVersion(Level.BASELINE, LATEST))) == 12
    assert len(checks_of(LevelVersion(Level.RESTRICTED, LATEST))) == 15

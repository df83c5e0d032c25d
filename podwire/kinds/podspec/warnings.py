"""Warnings about pods and pod templates that are valid and probably not what their author means.

The words are upstream's (pkg/api/pod/warnings.go), because users search for them. A warning never changes an object.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from podwire.kinds.podspec.volume_warnings import volume_warnings
from podwire.objects import names, quantity

Part = Mapping[str, Any]

DEPRECATED_NODE_LABELS: Mapping[str, str] = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
DEPRECATED_ANNOTATIONS: Mapping[str, str] = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
MOST_WARNINGS = 200
"""More than an answer can hold; a manifest may have billions of pairs of ports or files that conflict."""
BYTES = ("memory", "ephemeral-storage")
"""Resources of which a fraction does not exist."""
NULL_SELECTOR = "a null labelSelector results in matching no pod"
NEGATIVE_GRACE = "must be >= 0; negative values are invalid and will be treated as 1"
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
SECCOMP_FIELD = 'non-functional in v1.27+; use the "seccompProfile" field instead'
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def pod_warnings(pod: Part, old: Part | None) -> list[str]:
    """Returns the warnings about a new pod. Updates of pods are frequent and not written by hand: they have none."""
    if old is not None:
        return []
    return [*name_warnings(pod, "the Pod's hostname"), *islice(_warnings(pod, ""), MOST_WARNINGS)]


def name_warnings(obj: Part, used_in: str = "Pod names and hostnames") -> Iterator[str]:
    """Warns about a name that is not a DNS label; hostnames are."""
    if problems := names.dns_label(obj["metadata"]["name"]):
        yield (
            f"metadata.name: this is used in {used_in}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(problems)}]"
        )


def workload_warnings(obj: Part, old: Part | None) -> list[str]:
    """Returns the warnings about an object with the template of its pods in its spec."""
    warnings = [] if old is not None else list(name_warnings(obj))
    return warnings + template_warnings(obj, old)


def template_warnings(obj: Part, old: Part | None, path: Sequence[str] = ("spec", "template")) -> list[str]:
    """Returns the warnings about the template at a path; an update that leaves the spec as it is has none."""
    if old is not None and old["metadata"].get("generation") == obj["metadata"].get("generation"):
        return []
    template: Any = obj
    for name in path:
        template = template.get(name) or {}
    return list(islice(_warnings(template, ".".join(path) + "."), MOST_WARNINGS)) if template else []


def node_term_warnings(term: Part, path: str, *, values: bool = False) -> Iterator[str]:
    """Warns about labels in a nodeSelectorTerm that nodes will not have; with `values`, of values that none can."""
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        key, place = expression.get("key", ""), f"{path}.matchExpressions[{index}]"
        if key in DEPRECATED_NODE_LABELS:
            yield f"{place}.key: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if values:
            for number, value in enumerate(expression.get("values") or ()):
                for problem in names.label_value(value):
                    yield f"{place}.values[{number}]: {value} is invalid, {problem}"


def fraction_warnings(amounts: Part | None, path: str, resources: Sequence[str] = BYTES) -> Iterator[str]:
    """Warns about amounts of bytes that are not whole numbers: `100m` of memory is a tenth of a byte."""
    for name in resources:
        if amounts and name in amounts and (amount := quantity.parse(str(amounts[name]))).milli() % 1000:
            yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'


def claim_warnings(spec: Part, path: str) -> Iterator[str]:
    """Warns about a claim for a volume that asks for a part of a byte."""
    for kind in ("requests", "limits"):
        amounts = (spec.get("resources") or {}).get(kind)
        yield from fraction_warnings(amounts, f"{path}.resources.{kind}", ("storage",))


def _warnings(pod: Part, at: str) -> Iterator[str]:
    """Yields the warnings about a pod, or a template at the path `at`, which ends with a dot."""
    spec, path = pod.get("spec") or {}, f"{at}spec"
    yield from _node_labels(spec, path)
    yield from _spread_constraints(spec.get("topologySpreadConstraints") or (), f"{path}.topologySpreadConstraints")
    if annotations := (pod.get("metadata") or {}).get("annotations"):
        yield from _annotations(spec, annotations, f"{at}metadata.annotations")
    if volumes := spec.get("volumes"):
        yield from volume_warnings(volumes, f"{path}.volumes")
        for index, volume in enumerate(volumes):
            if template := (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
                claim = f"{path}.volumes[{index}].ephemeral.volumeClaimTemplate.spec"
                yield from claim_warnings(template.get("spec") or {}, claim)
    yield from _references(spec, path)
    yield from fraction_warnings(spec.get("overhead"), f"{path}.overhead")
    yield from _containers(spec, path)
    yield from _ports(spec, path)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield f"{path}.terminationGracePeriodSeconds: {NEGATIVE_GRACE}"
    if affinity := spec.get("affinity"):
        yield from _pod_affinity(affinity, f"{path}.affinity")


def _spread_constraints(constraints: Sequence[Part], path: str) -> Iterator[str]:
    for index, constraint in enumerate(constraints):
        key = constraint.get("topologyKey", "")
        if key in DEPRECATED_NODE_LABELS:
            yield f"{path}[{index}].topologyKey: {key} is {DEPRECATED_NODE_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{path}[{index}].labelSelector: {NULL_SELECTOR}"


def _references(spec: Part, path: str) -> Iterator[str]:
    """Warns about host aliases and pull secrets that are named twice; applying the manifest again drops one."""
    yield from _duplicates(spec.get("hostAliases") or (), "ip", f"{path}.hostAliases")
    secrets = spec.get("imagePullSecrets") or ()
    yield from _duplicates(secrets, "name", f"{path}.imagePullSecrets")
    for index, secret in enumerate(secrets):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'


def _node_labels(spec: Part, path: str) -> Iterator[str]:
    for key in sorted(DEPRECATED_NODE_LABELS.keys() & (spec.get("nodeSelector") or {}).keys()):
        yield f"{path}.nodeSelector[{key}]: {DEPRECATED_NODE_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    place = f"{path}.affinity.nodeAffinity"
    for index, term in enumerate(required.get("nodeSelectorTerms") or ()):
        terms = f"{place}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        yield from node_term_warnings(term, f"{terms}[{index}]")
    for index, term in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        preferred = f"{place}.preferredDuringSchedulingIgnoredDuringExecution[{index}].preference"
        yield from node_term_warnings(term.get("preference") or {}, preferred, values=True)


def _duplicates(items: Sequence[Part], key: str, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(key) or ""
        if value in seen:
            yield f'{path}[{index}].{key}: duplicate {key} "{value}"'
        seen.add(value)


def _annotations(spec: Part, annotations: Part, path: str) -> Iterator[str]:
    """Warns about annotations of which only the field that replaced them has an effect."""
    for key, message in DEPRECATED_ANNOTATIONS.items():
        if key in annotations:
            yield f"{path}[{key}]: {message}"
    if SECCOMP_POD in annotations and not (spec.get("securityContext") or {}).get("seccompProfile"):
        yield f"{path}[{SECCOMP_POD}]: {SECCOMP_FIELD}"
    for _place, container in _visit(spec, ""):
        key = SECCOMP_CONTAINER + container.get("name", "")
        if key in annotations and not (container.get("securityContext") or {}).get("seccompProfile"):
            yield f"{path}[{key}]: {SECCOMP_FIELD}"


def _containers(spec: Part, at: str) -> Iterator[str]:
    for path, container in _visit(spec, at):
        if resources := container.get("resources"):
            for name in BYTES:
                for kind in ("limits", "requests"):
                    yield from fraction_warnings(resources.get(kind), f"{path}.resources.{kind}", (name,))
        variables = container.get("env") or ()
        seen: set[str] = set()
        for index, variable in enumerate(variables):
            name, value = variable.get("name", ""), variable.get("value") or ""
            reference = f"$({name})"
            if name in seen and (variable.get("valueFrom") or value == reference or reference not in value):
                yield (
                    f'{path}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
                )
            seen.add(name)


def _ports(spec: Part, at: str) -> Iterator[str]:
    """Warns about ports that two containers have; a Service or a probe reaches one of them."""
    ports = [
        (f"{path}.ports[{index}]", port)
        for path, container in _visit(spec, at)
        for index, port in enumerate(container.get("ports") or ())
    ]
    if len(ports) < 2:
        return
    seen: defaultdict[tuple[object, ...], list[tuple[str, Part]]] = defaultdict(list)
    for path, port in ports:
        keys = _port_keys(port)
        for place, other in _conflicting(seen, *keys):
            yield f"{path}: {_conflict(port, other)} port definition with {place}"
        for key in keys:
            seen[key].append((path, port))
    named: dict[str, str] = {}
    for path, port in ports:
        if name := port.get("name"):
            first = named.setdefault(name, path)
            if first != path:
                yield (
                    f'{path}: duplicate port name "{name}" with {first}, '
                    f"services and probes that select ports by name will use {first}"
                )


def _port_keys(port: Part) -> tuple[tuple[object, ...], tuple[object, ...], tuple[object, ...]]:
    """Returns what a port is found by: number and protocol; these on the host's port; and on its address."""
    number = (port.get("containerPort", 0), port.get("protocol", "TCP"))
    host = (*number, port.get("hostPort") or 0)
    return number, host, (*host, port.get("hostIP") or "")


def _conflicting(
    seen: Mapping[tuple[object, ...], list[tuple[str, Part]]],
    number: tuple[object, ...],
    host: tuple[object, ...],
    address: tuple[object, ...],
) -> Iterator[tuple[str, Part]]:
    """Yields the ports that conflict with one, without a look at the others: a manifest may have 100,000 of them."""
    if not host[-1]:
        yield from seen.get(number, ())
        return
    yield from seen.get((*number, 0), ())
    if not address[-1]:
        yield from seen.get(host, ())
        return
    yield from seen.get((*host, ""), ())
    yield from seen.get(address, ())


def _conflict(port: Part, other: Part) -> str:
    """Returns in which way two definitions of the same port and protocol conflict."""
    host, other_host = port.get("hostPort") or 0, other.get("hostPort") or 0
    if (host, port.get("hostIP") or "") == (other_host, other.get("hostIP") or ""):
        return "duplicate"
    return "dangerously ambiguous" if host and other_host else "overlapping"


def _pod_affinity(affinity: Part, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        for index, term in enumerate(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            if term.get("labelSelector") is None:
                place = f"{path}.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"
                yield f"{place}.labelSelector: {NULL_SELECTOR}"
        for index, term in enumerate(rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                place = f"{path}.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
                yield f"{place}.podAffinityTerm.labelSelector: {NULL_SELECTOR}"


def _visit(spec: Part, at: str) -> Iterator[tuple[str, Part]]:
    for kind in CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{at}.{kind}[{index}]", container

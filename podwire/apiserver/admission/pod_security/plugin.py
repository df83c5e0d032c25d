"""The admission plugin PodSecurity: pods, templates of pods, and labels of namespaces."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.admission.namespaces import Namespaces
from podwire.apiserver.admission.pod_security.configuration import PodSecurityConfiguration
from podwire.apiserver.admission.pod_security.evaluation import detail, evaluate, reasons
from podwire.apiserver.admission.pod_security.levels import MODES, PREFIX, Level, LevelVersion, Policy, policy_of
from podwire.apiserver.admission.pod_security.results import Violation
from podwire.apiserver.ports import Store
from podwire.apiserver.request import context, offload
from podwire.kinds.resource import PREFIX as STORED
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import ApiError, Reason, invalid_object

IGNORED_SUBRESOURCES = frozenset(
    {"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status", "token"}
)
TEMPLATES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
"""Kinds that create pods, and where they keep the pod's template. They cause warnings; only their pods are refused."""

MOST_PODS = 3000
MOST_SECONDS = 1.0
"""Limits of the check of existing pods; a warning says how far it came."""
_YIELD_EVERY = 50


@dataclass(frozen=True, slots=True)
class PodSecurity(AdmissionPlugin):
    """Refuses, warns about and records what the policy of a namespace forbids."""

    store: Store
    namespaces: Namespaces
    configuration: PodSecurityConfiguration

    verbs = WRITES
    resources = frozenset({("", "pods"), ("", "namespaces"), *TEMPLATES})

    async def validate(self, operation: Operation) -> None:
        kind = (operation.resource.group, operation.resource.name)
        if kind == ("", "pods"):
            if operation.subresource not in IGNORED_SUBRESOURCES:
                await self._pod(operation)
        elif operation.subresource:
            return
        elif kind in TEMPLATES:
            await self._controller(operation, TEMPLATES[kind])
        else:
            await self._namespace(operation)

    async def _pod(self, operation: Operation) -> None:
        if operation.old is not None and not changes_images(operation.obj["spec"], operation.old["spec"]):
            return
        policy = await self._policy(operation)
        if policy is not None and not policy.privileged:
            await self._evaluate(operation, policy, operation.obj["metadata"], operation.obj["spec"], enforce=True)

    async def _controller(self, operation: Operation, path: tuple[str, ...]) -> None:
        policy = await self._policy(operation)
        if policy is None or policy.warn.level is policy.audit.level is Level.PRIVILEGED:
            return
        template: Object | None = operation.obj
        for word in path:
            template = (template or {}).get(word)
        if template:
            metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
            await self._evaluate(operation, policy, metadata, spec, enforce=False)

    async def _policy(self, operation: Operation) -> Policy | None:
        """Returns the policy for a pod or template; None for those that are exempt."""
        exempt = self.configuration
        if operation.namespace in exempt.namespaces or operation.user.name in exempt.users:
            operation.annotate(
                {f"{PREFIX}exempt": "namespace" if operation.namespace in exempt.namespaces else "user"},
            )
            return None
        namespace = await self.namespaces.of(operation)
        if namespace is None:
            raise ApiError(
                Reason.INTERNAL_ERROR, f'Internal error occurred: failed to lookup namespace "{operation.namespace}"'
            )
        return policy_of(namespace["metadata"].get("labels") or {}, exempt.defaults)[0]

    async def _evaluate(
        self, operation: Operation, policy: Policy, metadata: Object, spec: Object, *, enforce: bool
    ) -> None:
        if spec.get("runtimeClassName") in self.configuration.runtime_classes:
            operation.annotate({f"{PREFIX}exempt": "runtimeClass"})
            return
        results: dict[LevelVersion, list[Violation]] = {}
        for mode in (policy.enforce, policy.audit, policy.warn):
            if mode not in results:
                results[mode] = await offload.run(evaluate, mode, metadata, spec)
        if violations := results[policy.audit]:
            text = f'would violate PodSecurity "{policy.audit}": {detail(violations)}'
            operation.annotate({f"{PREFIX}audit-violations": text})
        if enforce and (violations := results[policy.enforce]):
            raise operation.forbidden(f'violates PodSecurity "{policy.enforce}": {detail(violations)}')
        if violations := results[policy.warn]:
            context.warn(f'would violate PodSecurity "{policy.warn}": {detail(violations)}')

    async def _namespace(self, operation: Operation) -> None:
        """Checks the labels; pods that the new level would refuse are named in warnings."""
        defaults = self.configuration.defaults
        labels = operation.obj["metadata"].get("labels") or {}
        policy, errors = policy_of(labels, defaults)
        before, old_errors = policy_of(((operation.old or {}).get("metadata") or {}).get("labels") or {}, defaults)
        if errors and (operation.old is None or list(map(str, errors)) != list(map(str, old_errors))):
            raise invalid_object("Namespace", operation.name, errors)
        exempt = operation.name in self.configuration.namespaces
        if operation.old is not None and not stricter(policy.enforce, before.enforce):
            return
        if exempt:
            if not policy.privileged and not policy.equivalent(defaults):
                context.warn(exempt_warning(operation.name, policy, labels))
        elif operation.old is not None:
            for text in await self._existing_pods(operation.name, policy.enforce):
                context.warn(text)

    async def _existing_pods(self, namespace: str, policy: LevelVersion) -> list[str]:
        page = await self.store.list(f"{STORED}pods/{namespace}/")
        pods = prioritized((unpack(item) for item in page.items), self.configuration.runtime_classes)
        deadline, checked = time.monotonic() + MOST_SECONDS, 0
        found: dict[str, list[str]] = {}
        for pod in pods[:MOST_PODS]:
            if violations := evaluate(policy, pod["metadata"], pod["spec"]):
                found.setdefault(reasons(violations), []).append(pod["metadata"]["name"])
            checked += 1
            if time.monotonic() > deadline:
                break
            if not checked % _YIELD_EVERY:
                await asyncio.sleep(0)
        return existing_pods_warnings(namespace, policy, found, checked, len(pods))


def changes_images(new: Object, old: Object) -> bool:
    """Returns whether an update may change what the checks decide: only images can, and ephemeral containers come."""
    for part in ("containers", "initContainers"):
        before, now = old.get(part) or (), new.get(part) or ()
        if [container.get("image") for container in before] != [container.get("image") for container in now]:
            return True
    known = {container["name"]: container.get("image") for container in old.get("ephemeralContainers") or ()}
    return any(
        container["name"] not in known or known[container["name"]] != container.get("image")
        for container in new.get("ephemeralContainers") or ()
    )


def stricter(new: LevelVersion, old: LevelVersion) -> bool:
    """Returns whether a change of what is enforced may forbid pods that exist."""
    if new == old or new.level is Level.PRIVILEGED:
        return False
    return new.minor != old.minor or new.level > old.level


def prioritized(pods: Iterable[Object], exempt_classes: frozenset[str]) -> list[Object]:
    """Returns the pods to check: one of each controller first, because its pods are alike."""
    first: list[Object] = []
    more: list[Object] = []
    controllers: set[str] = set()
    for pod in pods:
        if pod["spec"].get("runtimeClassName") in exempt_classes:
            continue
        owners = pod["metadata"].get("ownerReferences") or ()
        uid = next((owner["uid"] for owner in owners if owner.get("controller")), "")
        (more if uid and uid in controllers else first).append(pod)
        controllers.add(uid)
    return first + more


def existing_pods_warnings(
    namespace: str, policy: LevelVersion, found: Mapping[str, list[str]], checked: int, total: int
) -> list[str]:
    """Returns the warnings about pods that violate a new policy, by what they violate."""
    warnings = []
    if checked < total:
        warnings.append(
            f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        )
    if found:
        warnings.append(
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{policy}"'
        )
    lines = []
    for reason, names in found.items():
        others = {1: "", 2: " (and 1 other pod)"}.get(len(names), f" (and {len(names) - 1} other pods)")
        lines.append(f"{min(names)}{others}: {reason}")
    return warnings + sorted(lines)


def exempt_warning(namespace: str, policy: Policy, labels: Mapping[str, str]) -> str:
    chosen = [
        f"{mode}={level}"
        for mode, level in zip(MODES, (policy.enforce, policy.audit, policy.warn), strict=True)
        if level.level is not Level.PRIVILEGED and (f"{PREFIX}{mode}" in labels or f"{PREFIX}{mode}-version" in labels)
    ]
    return f'namespace "{namespace}" is exempt from Pod Security, and the policy ({", ".join(chosen)}) will be ignored'

"""The objects of a new cluster: namespaces, priority classes, roles, flow control, the server's service and its CA."""

import asyncio
import contextlib
import copy
import ipaddress
import uuid
from collections.abc import Awaitable, Sequence

from podwire.apiserver.admission.priorities import SYSTEM_PRIORITIES
from podwire.apiserver.engine import Engine
from podwire.apiserver.identity import default_policy
from podwire.apiserver.identity.default_policy import Default
from podwire.apiserver.identity.role_aggregation import RoleAggregation
from podwire.apiserver.identity.users import SYSTEM
from podwire.apiserver.local_services import LocalServices
from podwire.apiserver.write.updates import Write
from podwire.kinds.builtin.flowcontrol import defaults as flow_defaults
from podwire.kinds.resource import Resource
from podwire.kinds.stored import Object, pack, unpack
from podwire.objects.role_aggregation import outdated
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.status import ApiError, Reason
from podwire.protocols.storage import KeyExists

DEFAULT_CIDR = "kubernetes"
"""The name of the default ServiceCIDR."""
FRONT_PROXY_CA = "requestheader-client-ca-file"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


async def fill(
    engine: Engine,
    *,
    authority_pem: str,
    service_address: str,
    service_networks: Sequence[str],
    front_proxy_pem: str = "",
    definitions: Sequence[Object] = (),
) -> None:
    """Creates what is missing; existing objects stay as they are.

    Writes that come together share a transaction: first the namespaces, then what is in them and everything else.
    """
    registry = engine.registry
    namespaces, priorities = (
        registry.builtin("", "namespaces"),
        registry.builtin("scheduling.k8s.io", "priorityclasses"),
    )
    await asyncio.gather(*(_ensure(engine, namespaces, "", {"metadata": {"name": name}}) for name in NAMESPACES))
    await asyncio.gather(
        *(_ensure(engine, priorities, "", _priority(name, value)) for name, value in SYSTEM_PRIORITIES.items()),
        _ensure_authentication(engine, _authentication(authority_pem, front_proxy_pem)),
        _ensure(engine, registry.builtin("", "configmaps"), "kube-system", _token_tracking(engine.clock.wall())),
        _ensure(engine, registry.builtin("", "services"), "default", _service(service_address)),
        _ensure_service_cidr(engine, service_networks),
        _reconcile_roles(engine),
        _ensure_flow_control(engine),
        LocalServices(engine).start(),
        *(_ensure_definition(engine, definition) for definition in definitions),
    )


async def _ensure_service_cidr(engine: Engine, networks: Sequence[str]) -> None:
    """Creates the default ranges of service addresses, which are ready from the beginning."""
    resource = engine.registry.builtin("networking.k8s.io", "servicecidrs")
    ranges = {"metadata": {"name": DEFAULT_CIDR}, "spec": {"cidrs": list(networks)}}
    if not await _ensure(engine, resource, "", ranges):
        return
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": rfc3339(engine.clock.wall()),
    }
    await engine.updater.update(
        Write(
            resource=resource,
            namespace="",
            name=DEFAULT_CIDR,
            change=lambda cidr: {**cidr, "status": {"conditions": [condition]}},
            user=SYSTEM,
            subresource="status",
            run_policies=False,
        )
    )


async def _ensure_flow_control(engine: Engine) -> None:
    """Creates the priority levels and flow schemas."""
    levels = engine.registry.builtin(flow_defaults.GROUP, "prioritylevelconfigurations")
    schemas = engine.registry.builtin(flow_defaults.GROUP, "flowschemas")
    objects = [(levels, level) for level in flow_defaults.priority_levels()]
    objects += [(schemas, schema) for schema in flow_defaults.flow_schemas()]
    await asyncio.gather(*(_ensure(engine, resource, "", obj) for resource, obj in objects))


async def advertise(engine: Engine, address: str, port: int) -> None:
    """Publishes the address at which pods reach the server; a loopback address is not published."""
    if ipaddress.ip_address(address).is_loopback:
        return
    registry = engine.registry
    await asyncio.gather(
        _create_or_update(engine, registry.builtin("", "endpoints"), _endpoints(address, port)),
        _create_or_update(engine, registry.builtin("discovery.k8s.io", "endpointslices"), _slice(address, port)),
    )


async def _ensure_definition(engine: Engine, definition: Object) -> None:
    """Creates a CustomResourceDefinition that the cluster comes with. A test validates it: to compile its rules takes
    the CEL library, which the server does not load before an object needs it."""
    resource = engine.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions")
    await _ensure(engine, resource, "", copy.deepcopy(definition), is_valid=True)


async def _ensure(engine: Engine, resource: Resource, namespace: str, obj: Object, *, is_valid: bool = False) -> bool:
    """Creates an object; returns False when it exists."""
    if await engine.find(resource, namespace, obj["metadata"]["name"]) is not None:
        return False
    whole = {"kind": resource.kind.kind, "apiVersion": resource.kind.api_version, **obj}
    try:
        await engine.creator.create(resource, namespace, whole, SYSTEM, is_valid=is_valid)
    except ApiError as error:
        if error.reason is not Reason.ALREADY_EXISTS:
            raise
        return False
    return True


async def _reconcile_roles(engine: Engine) -> None:
    """Creates missing default roles and bindings and adds what existing ones lack, all at once: one commit.

    New ones are stored as they are, since a test validates the tables; 140 passes through admission and validation
    would be the longest part of a start. Aggregated roles follow, since their rules are those of others.
    """
    kinds = {name: engine.registry.builtin(default_policy.GROUP, name) for name in default_policy.RESOURCES}
    stored = {item.key: item for kind in kinds.values() for item in (await engine.store.list(kind.prefix)).items}
    created = rfc3339(engine.clock.wall())
    present = {key: unpack(item) for key, item in stored.items()}
    writes: list[Awaitable[object]] = []
    new: dict[str, Object] = {}
    for default in default_policy.defaults():
        resource, obj = kinds[default.resource], default.object
        key = resource.key(default.namespace, obj["metadata"]["name"])
        if key not in present:
            new[key] = _identified(resource, default, created)
        elif default_policy.reconciled(present[key], obj) is not present[key]:
            writes.append(engine.updater.update(_reconciliation(resource, default)))
    for key, rules in outdated(present | new).items() if new else ():
        if key in new:
            new[key]["rules"] = rules
    await asyncio.gather(*writes, *(_store(engine, key, pack(obj)) for key, obj in new.items()))
    await RoleAggregation(engine.store, engine.registry, engine.updater).reconcile()


async def _store(engine: Engine, key: str, value: bytes) -> None:
    with contextlib.suppress(KeyExists):  # another server of the same store was faster
        await engine.store.create(key, value)


def _identified(resource: Resource, default: Default, created: str) -> Object:
    """Returns a default object with everything that the server sets."""
    metadata = default.object["metadata"]
    name = {"name": metadata["name"], **({"namespace": default.namespace} if default.namespace else {})}
    own = {**name, "uid": str(uuid.uuid4()), "creationTimestamp": created}
    kind = {"kind": resource.kind.kind, "apiVersion": resource.kind.api_version}
    return {**kind, **default.object, "metadata": {**own, **metadata}}


def _reconciliation(resource: Resource, default: Default) -> Write:
    return Write(
        resource=resource,
        namespace=default.namespace,
        name=default.object["metadata"]["name"],
        change=lambda old: default_policy.reconciled(old, default.object),
        user=SYSTEM,
        run_policies=False,
    )


async def _create_or_update(engine: Engine, resource: Resource, obj: Object) -> None:
    """Creates an object in namespace default, or updates it."""
    if await _ensure(engine, resource, "default", obj):
        return
    write = Write(
        resource=resource,
        namespace="default",
        name=obj["metadata"]["name"],
        change=lambda old: {**old, **{key: value for key, value in obj.items() if key != "metadata"}},
        user=SYSTEM,
        run_policies=False,
    )
    await engine.updater.update(write)


def _priority(name: str, value: int) -> Object:
    return {
        "metadata": {"name": name},
        "value": value,
        "description": "Used for system critical pods that must run in the cluster."
        if "cluster" in name
        else "Used for system critical pods that must not be moved from their current node.",
    }


def _authentication(authority_pem: str, front_proxy_pem: str) -> Object:
    """Returns how aggregated API servers authenticate: by the CA of users, and by headers of the front proxy."""
    headers = {
        FRONT_PROXY_CA: front_proxy_pem,
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return {
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": authority_pem, **(headers if front_proxy_pem else {})},
    }


def _token_tracking(now: float) -> Object:
    """Returns since when uses of tokens in Secrets are recorded: a stock controller-manager removes unused ones a year
    later."""
    return {
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking"},
        "data": {"since": rfc3339(now)[:10]},
    }


async def _ensure_authentication(engine: Engine, wanted: Object) -> None:
    """Creates the ConfigMap, or completes the one that is there; of several servers, each adds its front proxy's CA."""
    resource, name = engine.registry.builtin("", "configmaps"), wanted["metadata"]["name"]
    if await _ensure(engine, resource, "kube-system", wanted):
        return

    def completed(obj: Object) -> Object:
        data = {**wanted["data"], **(obj.get("data") or {})}
        ours = wanted["data"].get(FRONT_PROXY_CA, "")
        if ours not in data.get(FRONT_PROXY_CA, ""):
            data[FRONT_PROXY_CA] += ours
        return {**obj, "data": data}

    await engine.updater.update(
        Write(
            resource=resource,
            namespace="kube-system",
            name=name,
            change=completed,
            user=SYSTEM,
            run_policies=False,
        )
    )


def _service(address: str) -> Object:
    labels = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
    return {
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [port], "type": "ClusterIP"},
    }


def _endpoints(address: str, number: int) -> Object:
    port = {"name": "https", "port": number, "protocol": "TCP"}
    labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return {
        "metadata": {"name": "kubernetes", "labels": labels},
        "subsets": [{"addresses": [{"ip": address}], "ports": [port]}],
    }


def _slice(address: str, number: int) -> Object:
    port = {"name": "https", "port": number, "protocol": "TCP"}
    return {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if ":" in address else "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [port],
    }

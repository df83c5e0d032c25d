"""Requirements of the CNI specification 1.1.0 for plugins, as cases."""

import ipaddress
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from podwire.inspect.conformance.cni_subject import (
    CHAINED,
    INTERFACE,
    IPAM,
    POOL,
    Object,
    Pod,
    Reply,
    Subject,
    addresses_of,
    links_of,
)
from podwire.inspect.conformance.report import Cases, Level, NotApplicable, Unmet
from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Veth
from podwire.protocols.cni.errors import Code
from podwire.protocols.cni.versions import at_least

PARALLEL = 5
KILLS = 6
ENVIRONMENT = "section 2, Parameters"
VERSIONING = "section 2, VERSION: probe plugin version support"
RESULT = "section 5, ADD Success"
ERRORS = "section 5, Error"
ADD, DEL, CHECK, STATUS, GC = (
    f"section 2, {text}"
    for text in (
        "ADD: Add container to network, or apply modifications",
        "DEL: Remove container from network, or un-apply modifications",
        "CHECK: Check container's networking is as expected",
        "STATUS: Check plugin status",
        "GC: Clean up any stale resources",
    )
)

case = Cases[Subject]()


def _fails(reply: Reply, code: Code | None = None) -> None:
    """The call must have failed, with an error object, and this code."""
    if not reply.code:
        raise Unmet(f"{reply.verb} succeeded, and must fail\n{reply.shown}")
    error = reply.object
    if not isinstance(error.get("code"), int) or not isinstance(error.get("msg"), str):
        raise Unmet(f"the error object needs a number `code` and a text `msg`\n{reply.shown}")
    if code is not None and error["code"] != code:
        raise Unmet(f"the error has code {error['code']}, and must have {int(code)}\n{reply.shown}")


def _supports(subject: Subject, verb: str, since: str) -> None:
    if not at_least(subject.version, since):
        raise NotApplicable(f"{verb} is not in cniVersion {subject.version}")


def _only(subject: Subject, *kinds: str) -> None:
    if subject.kind not in kinds:
        raise NotApplicable(f"for {' and '.join(kinds)} plugins")


def _attached(subject: Subject, pod: Pod) -> Object:
    result = subject.add(pod)
    if subject.kind == INTERFACE and pod.ifname not in links_of(pod.netns):
        raise Unmet(f"after ADD the namespace has no interface {pod.ifname}\nresult: {json.dumps(result)}")
    return result


def _silent(reply: Reply) -> None:
    if reply.code:
        raise Unmet(f"{reply.verb} failed\n{reply.shown}")


@case("VERSION lists the supported versions", VERSIONING)
def _version(subject: Subject) -> None:
    reply = subject.call("VERSION", None, {"cniVersion": subject.version})
    _silent(reply)
    versions = reply.object.get("supportedVersions")
    if not isinstance(versions, list) or subject.version not in versions:
        raise Unmet(f"supportedVersions must have {subject.version}, which is tested\n{reply.shown}")


@case("VERSION has cniVersion in its answer", VERSIONING)
def _version_field(subject: Subject) -> None:
    reply = subject.call("VERSION", None, {"cniVersion": subject.version})
    if not isinstance(reply.object.get("cniVersion"), str):
        raise Unmet(f"the answer has no cniVersion\n{reply.shown}")


@case("ADD makes the interface, or reports addresses, and returns a result", ADD)
def _add(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        _attached(subject, pod)


@case("the result has the cniVersion of the request", RESULT)
def _result_version(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        if result.get("cniVersion") != subject.version:
            raise Unmet(f"cniVersion is {result.get('cniVersion')!r}, and {subject.version} was requested")


@case("interfaces and addresses of the result are those of the namespace", RESULT)
def _result_true(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        interfaces, ips = result.get("interfaces", []), result.get("ips", [])
        for number, entry in enumerate(ips):
            if not _is_cidr(entry.get("address")):
                raise Unmet(f"ips[{number}].address: {entry.get('address')!r} is not an address with a prefix length")
            index = entry.get("interface")
            if subject.kind != IPAM and index is not None and not 0 <= index < len(interfaces):
                raise Unmet(f"ips[{number}].interface: {index} is not an index into interfaces")
        if subject.kind == INTERFACE:
            _compare(pod, interfaces, ips)


def _is_cidr(text: object) -> bool:
    try:
        ipaddress.ip_interface(str(text))
    except ValueError:
        return False
    return "/" in str(text)


def _compare(pod: Pod, interfaces: list[Object], ips: list[Object]) -> None:
    inside = [entry for entry in interfaces if entry.get("sandbox")]
    if not any(entry.get("name") == pod.ifname and entry.get("sandbox") == pod.netns for entry in inside):
        raise Unmet(f"interfaces must have {pod.ifname} with sandbox {pod.netns}\ninterfaces: {json.dumps(interfaces)}")
    there = links_of(pod.netns)
    for entry in inside:
        link = there.get(entry["name"])
        if link is None or (entry.get("mac") and entry["mac"].lower() != link.mac.lower()):
            raise Unmet(f"the namespace has no interface {entry['name']} with MAC address {entry.get('mac')}")
    for entry in ips:
        index = entry.get("interface")
        name = interfaces[index]["name"] if index is not None else pod.ifname
        found = addresses_of(pod.netns, name)
        if str(ipaddress.ip_interface(entry["address"])) not in found:
            raise Unmet(f"{name} does not have {entry['address']}, but {', '.join(sorted(found)) or 'no address'}")


@case("two containers get different addresses", ADD)
def _different(subject: Subject) -> None:
    with subject.pods("a", "b") as [first, second]:
        results = [_attached(subject, pod) for pod in (first, second)]
        ips = [ip["address"] for result in results for ip in result.get("ips", [])]
        if not ips or not subject.known_pool:
            raise NotApplicable("the configuration may assign an address twice, or none")
        if len(set(ips)) < len(ips):
            raise Unmet(f"both got {ips[0]}")


@case("ADD fails when the interface exists already, and leaves it alone", ADD)
def _exists(subject: Subject) -> None:
    _only(subject, INTERFACE)
    with subject.pods("a") as [pod]:
        with KernelNetwork() as host:
            host.links.add(Veth("foreign", pod.ifname, peer_netns=pod.netns))
        before = links_of(pod.netns)[pod.ifname]
        _fails(subject.call("ADD", pod))
        after = links_of(pod.netns).get(pod.ifname)
        if after is None or (after.ifindex, after.mac) != (before.ifindex, before.mac):
            raise Unmet(f"{pod.ifname}, which the plugin did not make, was removed or replaced")


@case("ADD that fails leaves no links on the host", ADD, Level.SHOULD)
def _leaves_nothing(subject: Subject) -> None:
    _only(subject, INTERFACE)
    with subject.pods("a") as [pod]:
        _attached(subject, pod)  # a bridge and the like exist from now on
        subject.delete(pod)
        before = set(links_of())
        reply = subject.call("ADD", Pod(pod.id, "/proc/podwire-has-no-such-namespace"))
        _fails(reply)
        if left := set(links_of()) - before:
            raise Unmet(f"links of the host that were left: {', '.join(sorted(left))}\n{reply.shown}")


@case("an attachment of a second interface does not disturb the first", ADD, Level.SHOULD)
def _second_interface(subject: Subject) -> None:
    _only(subject, INTERFACE)
    with subject.pods("a") as [pod]:
        _attached(subject, pod)
        second = Pod(pod.id, pod.netns, "net1")
        try:
            _attached(subject, second)
            if pod.ifname not in links_of(pod.netns):
                raise Unmet(f"{pod.ifname} is gone after ADD of net1")
        finally:
            with suppress(Unmet):
                subject.delete(second)
        if pod.ifname not in links_of(pod.netns):
            raise Unmet(f"{pod.ifname} is gone after DEL of net1")


@case("a chained plugin passes prevResult on", ADD)
def _passes_on(subject: Subject) -> None:
    _only(subject, CHAINED)
    with subject.pods("a") as [pod]:
        given = subject.prepared(pod)["prevResult"]
        result = subject.add(pod)
        names = [entry.get("name") for entry in result.get("interfaces", [])]
        if missing := [entry["name"] for entry in given["interfaces"] if entry["name"] not in names]:
            raise Unmet(f"interfaces of prevResult are missing in the result: {', '.join(missing)}")


@case("parallel ADDs and DELs succeed, with different addresses", ADD)
def _parallel(subject: Subject) -> None:
    with subject.pods(*(f"p{number}" for number in range(PARALLEL))) as pods, ThreadPoolExecutor(PARALLEL) as threads:
        results = list(threads.map(lambda pod: _attached(subject, pod), pods))
        ips = [ip["address"] for result in results for ip in result.get("ips", [])]
        if subject.known_pool and len(set(ips)) < len(ips):
            raise Unmet(f"an address was assigned twice: {', '.join(sorted(ips))}")
        list(threads.map(subject.delete, pods))


@case("DEL removes the interface", DEL)
def _del(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        subject.delete(pod, prevResult=result)
        if subject.kind == INTERFACE and pod.ifname in links_of(pod.netns):
            raise Unmet(f"{pod.ifname} is still in the namespace")


@case("DEL succeeds again, and for a container that was never added", DEL)
def _del_again(subject: Subject) -> None:
    with subject.pods("a", "b") as [pod, never]:
        result = _attached(subject, pod)
        subject.delete(pod, prevResult=result)
        subject.delete(pod, prevResult=result)
        subject.delete(pod)
        subject.delete(never)


@case("DEL succeeds when the namespace is gone", DEL, Level.SHOULD)
def _del_without_namespace(subject: Subject) -> None:
    with subject.pods("a", "b") as [missing, empty]:
        for pod, netns in ((missing, missing.netns), (empty, "")):
            result = _attached(subject, pod)
            subject.gone(pod)
            subject.delete(Pod(pod.id, netns, pod.ifname), prevResult=result)


@case("DEL releases the address, also without the namespace and prevResult", DEL, Level.SHOULD)
def _del_releases(subject: Subject) -> None:
    if not subject.known_pool:
        raise NotApplicable("the address pool of the configuration is not known")
    for round_ in range(POOL + 1):
        with subject.pods(f"r{round_}") as [pod]:
            try:
                _attached(subject, pod)
            except Unmet as error:
                raise Unmet(
                    f"after {round_} attachments that were deleted, the pool of {POOL} is full\n{error}"
                ) from error
            subject.gone(pod)
            subject.delete(Pod(pod.id, "", pod.ifname))


@case("DEL and ADD work after an ADD that was killed", DEL)
def _killed(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        began = time.monotonic()
        _attached(subject, pod)
        took = time.monotonic() - began
    chance = random.Random(1)
    for number in range(KILLS):
        with subject.pods("k") as [pod]:
            config = subject.request(**subject.prepared(pod))
            subject.killed_after(took * (number + chance.random()) / KILLS, pod, config)
            try:
                subject.delete(pod)
                _attached(subject, pod)
            except Unmet as error:
                raise Unmet(f"ADD was killed after {number}/{KILLS} of its time\n{error}") from error


@case("CHECK succeeds after ADD", CHECK)
def _check(subject: Subject) -> None:
    _supports(subject, "CHECK", "0.4.0")
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        _silent(subject.call("CHECK", pod, subject.request(prevResult=result)))


@case("CHECK fails when the interface is gone", CHECK)
def _check_interface(subject: Subject) -> None:
    _supports(subject, "CHECK", "0.4.0")
    _only(subject, INTERFACE)
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        with KernelNetwork(pod.netns) as network:
            network.links.delete(pod.ifname)
        _fails(subject.call("CHECK", pod, subject.request(prevResult=result)))


@case("CHECK fails when an address of the result is gone", CHECK)
def _check_address(subject: Subject) -> None:
    _supports(subject, "CHECK", "0.4.0")
    _only(subject, INTERFACE)
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        if not result.get("ips"):
            raise NotApplicable("the plugin assigns no addresses")
        with KernelNetwork(pod.netns) as network:
            index = network.links.get(pod.ifname).ifindex
            for address in network.addresses.list(index):
                with suppress(LinuxError):
                    network.addresses.delete(index, address.interface)
        _fails(subject.call("CHECK", pod, subject.request(prevResult=result)))


@case("CHECK fails without prevResult", CHECK)
def _check_without_result(subject: Subject) -> None:
    _supports(subject, "CHECK", "0.4.0")
    _only(subject, INTERFACE, CHAINED)
    with subject.pods("a") as [pod]:
        _attached(subject, pod)
        _fails(subject.call("CHECK", pod))


@case("STATUS succeeds while ADD works", STATUS)
def _status(subject: Subject) -> None:
    _supports(subject, "STATUS", "1.1.0")
    _silent(subject.call("STATUS"))


@case("STATUS fails when no address is left", STATUS, Level.SHOULD)
def _status_full(subject: Subject) -> None:
    _supports(subject, "STATUS", "1.1.0")
    if not subject.known_pool:
        raise NotApplicable("the address pool of the configuration is not known")
    with subject.pods(*(f"s{number}" for number in range(POOL))) as pods:
        for pod in pods:
            _attached(subject, pod)
        reply = subject.call("STATUS")
        if not reply.code:
            raise Unmet(f"STATUS succeeds although all {POOL} addresses are assigned, and ADD would fail")
        _fails(reply)


@case("GC keeps valid attachments", GC)
def _gc_keeps(subject: Subject) -> None:
    _supports(subject, "GC", "1.1.0")
    with subject.pods("a") as [pod]:
        result = _attached(subject, pod)
        _silent(subject.call("GC", None, _valid(subject, pod)))
        _silent(subject.call("CHECK", pod, subject.request(prevResult=result)))


@case("GC releases attachments that are not valid any more", GC, Level.SHOULD)
def _gc_releases(subject: Subject) -> None:
    _supports(subject, "GC", "1.1.0")
    if not subject.known_pool:
        raise NotApplicable("the address pool of the configuration is not known")
    with subject.pods("kept", *(f"g{number}" for number in range(POOL - 1))) as [kept, *stale]:
        for pod in (kept, *stale):
            _attached(subject, pod)
        for pod in stale:
            subject.gone(pod)
        _silent(subject.call("GC", None, _valid(subject, kept)))
        with subject.pods("new") as [new]:
            try:
                _attached(subject, new)
            except Unmet as error:
                raise Unmet(
                    f"{POOL - 1} of {POOL} addresses belong to attachments that GC should release\n{error}"
                ) from error


def _valid(subject: Subject, *pods: Pod) -> Object:
    entries = [{"containerID": pod.id, "ifname": pod.ifname} for pod in pods]
    return subject.request(**{"cni.dev/valid-attachments": entries})


@case("CHECK, GC and STATUS fail in versions that do not have them, with code 1", VERSIONING, Level.SHOULD)
def _too_old(subject: Subject) -> None:
    versions = subject.call("VERSION", None, {"cniVersion": subject.version}).object.get("supportedVersions", [])
    tried = False
    for verb, older in (("CHECK", "0.3.1"), ("STATUS", "1.0.0"), ("GC", "1.0.0")):
        if older not in versions:
            continue
        tried = True
        with subject.pods("a") as [pod]:
            _fails(
                subject.at_version(older).call(verb, pod, subject.request(cniVersion=older)), Code.INCOMPATIBLE_VERSION
            )
    if not tried:
        raise NotApplicable("the plugin does not support older versions")


@case("ADD and DEL work in every supported version, with its form of the result", RESULT)
def _all_versions(subject: Subject) -> None:
    _only(subject, INTERFACE, IPAM)
    for version in subject.call("VERSION", None, {"cniVersion": subject.version}).object.get("supportedVersions", []):
        with subject.pods("a") as [pod]:
            old = subject.at_version(version)
            result = old.add(pod)
            if at_least(version, "0.3.0"):
                right = isinstance(result.get("ips", []), list) and "ip4" not in result
            else:
                right = "ips" not in result
            if not right:
                raise Unmet(f"the result does not have the form of {version}: {json.dumps(result)[:500]}")
            old.delete(pod)


@case("an unsupported cniVersion is refused with code 1", ERRORS)
def _unsupported(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        _fails(subject.call("ADD", pod, subject.request(cniVersion="9.9.9")), Code.INCOMPATIBLE_VERSION)


@case("input that is not JSON is refused with code 6", ERRORS)
def _not_json(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        _fails(subject.call("ADD", pod, b"{not JSON"), Code.UNDECODABLE)


@case("an unknown CNI_COMMAND is refused with code 4", ENVIRONMENT)
def _unknown_command(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        _fails(subject.call("ADD", pod, CNI_COMMAND="MULTIPLY"), Code.BAD_ENVIRONMENT)


@case("a missing variable is refused with code 4", ENVIRONMENT)
def _missing(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        for name in ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"):
            _fails(subject.call("ADD", pod, **{name: None}), Code.BAD_ENVIRONMENT)


@case("an invalid CNI_CONTAINERID is refused", ENVIRONMENT)
def _bad_id(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        _fails(subject.call("ADD", Pod("../../escape", pod.netns)))


@case("an interface name that the kernel does not allow is refused", ENVIRONMENT)
def _bad_name(subject: Subject) -> None:
    _only(subject, INTERFACE)
    with subject.pods("a") as [pod]:
        for name in ("much-too-long-for-a-link", "a/b"):
            _fails(subject.call("ADD", Pod(pod.id, pod.netns, name)))


@case("a configuration without name is refused", ERRORS, Level.SHOULD)
def _no_name(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        _fails(subject.call("ADD", pod, subject.request(name=None)))


@case("an error has the cniVersion of the request", ERRORS, Level.SHOULD)
def _error_version(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        reply = subject.call("ADD", Pod("../../escape", pod.netns))
    _fails(reply)
    if not reply.object.get("cniVersion"):
        raise Unmet(f"the error has no cniVersion\n{reply.shown}")


@case("unknown keys of the configuration are accepted", "section 1, Plugin configuration objects", Level.SHOULD)
def _unknown_keys(subject: Subject) -> None:
    with subject.pods("a") as [pod]:
        subject.add(pod, **{"com.example.note": {"kept": True}})

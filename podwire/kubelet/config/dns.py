"""DNS configuration of a pod: its host name, /etc/hosts and resolv.conf. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.objects.pods import DnsOption, Pod
from podwire.protocols.cri import cri_pb2 as pb

LONGEST_HOSTNAME = 63
"""A label of DNS."""
LONGEST_KERNEL_NAME = 64
"""Characters that the kernel stores as the nodename."""

MOST_SERVERS, MOST_SEARCHES, LONGEST_SEARCH_LINE, LONGEST_SEARCH = 3, 32, 2048, 253
"""Limits of glibc's resolver."""
CLUSTER_OPTIONS = ("ndots:5",)
"""So that `service.namespace.svc` is tried with the search domains of the cluster first."""

_MANAGED = "# Kubernetes-managed hosts file.\n"
_MANAGED_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
_ALIASES = "\n# Entries added by HostAliases.\n"
_LOCAL = (
    ("127.0.0.1", "localhost"),
    ("::1", "localhost ip6-localhost ip6-loopback"),
    ("fe00::0", "ip6-localnet"),
    ("fe00::0", "ip6-mcastprefix"),
    ("fe00::1", "ip6-allnodes"),
    ("fe00::2", "ip6-allrouters"),
)


class NameTooLong(Exception):
    """The FQDN of a pod is longer than the kernel's nodename."""


@dataclass(frozen=True, slots=True)
class NodeDns:
    """The node's own resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsSettings:
    cluster_servers: tuple[str, ...]
    cluster_domain: str
    node: NodeDns
    node_hosts: str = ""
    """The node's own /etc/hosts, for pods on its network."""


def pod_hostname(pod: Pod, cluster_domain: str) -> tuple[str, str]:
    """The pod's host name and its domain, which is empty without a subdomain."""
    hostname = (pod.spec.hostname or pod.name)[:LONGEST_HOSTNAME].rstrip("-.")
    subdomain = pod.spec.subdomain
    return hostname, f"{subdomain}.{pod.namespace}.svc.{cluster_domain}" if subdomain else ""


def kernel_name(pod: Pod, cluster_domain: str) -> str:
    """The nodename of the pod: its host name, or its FQDN with setHostnameAsFQDN. Raises NameTooLong."""
    hostname, domain = pod_hostname(pod, cluster_domain)
    if not pod.spec.set_hostname_as_fqdn or not domain:
        return hostname
    whole = f"{hostname}.{domain}"
    if len(whole) > LONGEST_KERNEL_NAME:
        raise NameTooLong(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {whole} is too long "
            f"({LONGEST_KERNEL_NAME} characters is the max, {len(whole)} characters requested)"
        )
    return whole


def hosts_file(pod: Pod, hostname: str, domain: str, ips: Sequence[str], *, node_hosts: str = "") -> str:
    """The pod's /etc/hosts. On the node's network it is the node's own (`node_hosts`) with the pod's aliases."""
    lines_of_aliases = "".join("\t".join((alias.ip, *alias.hostnames)) + "\n" for alias in pod.spec.host_aliases)
    aliases = _ALIASES + lines_of_aliases if lines_of_aliases else ""
    if pod.spec.host_network:
        return _MANAGED_HOST_NETWORK + node_hosts + aliases
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    lines = (*_LOCAL, *((ip, names) for ip in ips))
    return _MANAGED + "".join(f"{ip}\t{name}\n" for ip, name in lines) + aliases


def node_dns(resolv_conf: str) -> NodeDns:
    """Parses a resolv.conf: servers and options add up, of `search` the last line counts, without the root."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: dict[str, str] = {}
    for line in resolv_conf.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search", *names]:
                searches = tuple(name.removesuffix(".") for name in names if name != ".")
            case ["options", *given]:
                options |= {option.partition(":")[0]: option for option in given}
    return NodeDns(tuple(servers), searches, tuple(options.values()))


def pod_dns(pod: Pod, settings: DnsSettings) -> tuple[pb.DNSConfig, str]:
    """The pod's resolv.conf by its dnsPolicy and dnsConfig; the message of a MissingClusterDNS event, if any."""
    requested, warning = _requested(pod, settings)
    searches = _within_limits(requested.searches)
    config = pb.DNSConfig(servers=requested.servers[:MOST_SERVERS], searches=searches, options=requested.options)
    return config, warning


def omitted(pod: Pod, settings: DnsSettings) -> tuple[str, ...]:
    """Messages of DNSConfigForming events: what exceeded the limits of resolvers and was omitted."""
    requested, _ = _requested(pod, settings)
    messages = []
    if len(requested.servers) > MOST_SERVERS:
        line = " ".join(requested.servers[:MOST_SERVERS])
        messages.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {line}"
        )
    if (kept := _within_limits(requested.searches)) != requested.searches:
        messages.append(
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {' '.join(kept)}"
        )
    return tuple(messages)


def _requested(pod: Pod, settings: DnsSettings) -> tuple[NodeDns, str]:
    """The configuration before limits. With hostNetwork, ClusterFirst means the node's resolver."""
    policy, warning, domain = pod.spec.dns_policy, "", settings.cluster_domain
    cluster_first = policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod.spec.host_network)
    if policy == "None":
        base = NodeDns()
    elif not cluster_first:
        base = settings.node
    elif settings.cluster_servers:
        own = (f"{pod.namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
        base = NodeDns(settings.cluster_servers, _unique((*own, *settings.node.searches)), CLUSTER_OPTIONS)
    else:
        base = settings.node
        warning = (
            f'pod: "{pod.name}_{pod.namespace}({pod.uid})". kubelet does not have ClusterDNS IP configured and cannot '
            'create Pod using "ClusterFirst" policy. Falling back to "Default" policy.'
        )
    config = pod.spec.dns_config
    if config is None:
        return base, warning
    merged = NodeDns(
        _unique((*base.servers, *config.nameservers)),
        _unique((*base.searches, *config.searches)),
        _options(base.options, config.options),
    )
    return merged, warning


def _options(base: Iterable[str], own: Iterable[DnsOption]) -> tuple[str, ...]:
    """Options by name; the pod's own override those of its policy."""
    merged = {name: value for name, _, value in (option.partition(":") for option in base)}
    merged |= {option.name: option.value or "" for option in own}
    return tuple(f"{name}:{value}" if value else name for name, value in merged.items())


def _within_limits(searches: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    length = -1
    for search in (search for search in searches[:MOST_SEARCHES] if len(search) <= LONGEST_SEARCH):
        length += 1 + len(search)
        if length > LONGEST_SEARCH_LINE:
            break
        kept.append(search)
    return tuple(kept)


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))

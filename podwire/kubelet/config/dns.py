"""How a pod is called, its /etc/hosts and its resolv.conf. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from podwire.objects.pods import DnsConfig, DnsOption, HostAlias, Pod
from podwire.protocols.cri import cri_pb2 as pb

LONGEST_HOSTNAME = 63
"""A label of DNS."""
LONGEST_KERNEL_NAME = 64
"""What the kernel keeps as nodename."""

MOST_SERVERS, MOST_SEARCHES, LONGEST_SEARCH_LINE, LONGEST_SEARCH = 3, 32, 2048, 253
"""More than this resolvers do not read, or do not survive."""
CLUSTER_OPTIONS = ("ndots:5",)
"""So that service.namespace.svc is looked for in the cluster first."""

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
    """What a pod is to be called does not fit where the kernel keeps it."""


@dataclass(frozen=True, slots=True)
class NodeDns:
    """The node's own resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def hostname_of(pod: Pod, cluster_domain: str) -> tuple[str, str]:
    """The pod's name on its network, and the domain that it is in: empty without a subdomain."""
    hostname = (pod.spec.hostname or pod.name)[:LONGEST_HOSTNAME].rstrip("-.")
    subdomain = pod.spec.subdomain
    return hostname, f"{subdomain}.{pod.namespace}.svc.{cluster_domain}" if subdomain else ""


def kernel_name(pod: Pod, cluster_domain: str) -> str:
    """What `hostname` prints in the pod: the name alone, or with its domain if the pod wants that. NameTooLong."""
    hostname, domain = hostname_of(pod, cluster_domain)
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
    """The pod's /etc/hosts. On the node's network it is the node's own (`node_hosts`), with the pod's aliases."""
    aliases = _alias_lines(pod.spec.host_aliases)
    if pod.spec.host_network:
        return _MANAGED_HOST_NETWORK + node_hosts + aliases
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    lines = (*_LOCAL, *((ip, names) for ip in ips))
    return _MANAGED + "".join(f"{ip}\t{name}\n" for ip, name in lines) + aliases


def _alias_lines(aliases: Sequence[HostAlias]) -> str:
    lines = "".join("\t".join((each.ip, *each.hostnames)) + "\n" for each in aliases)
    return _ALIASES + lines if lines else ""


def node_dns(resolv_conf: str) -> NodeDns:
    """What a resolv.conf says: servers add up, of search and options the last line counts."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    for line in resolv_conf.splitlines():
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["search", *names]:
                searches = tuple(each if each == "." else each.removesuffix(".") for each in names)
            case ["options", *given]:
                options = tuple(given)
    return NodeDns(tuple(servers), searches, options)


def dns_of(pod: Pod, node: NodeDns, cluster_dns: Sequence[str], cluster_domain: str) -> tuple[pb.DNSConfig, str]:
    """A pod's resolv.conf by its dnsPolicy and dnsConfig; and what to tell of it as MissingClusterDNS, if anything."""
    wanted, warning = _wanted(pod, node, cluster_dns, cluster_domain)
    kept = pb.DNSConfig(
        servers=wanted.servers[:MOST_SERVERS], searches=_searches_kept(wanted.searches), options=wanted.options
    )
    return kept, warning


def dns_left_out(pod: Pod, node: NodeDns, cluster_dns: Sequence[str], cluster_domain: str) -> tuple[str, ...]:
    """What to tell as DNSConfigForming: resolvers could not take all that the pod's resolv.conf should say."""
    wanted, _ = _wanted(pod, node, cluster_dns, cluster_domain)
    told = []
    if len(wanted.servers) > MOST_SERVERS:
        line = " ".join(wanted.servers[:MOST_SERVERS])
        told.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {line}"
        )
    if (kept := _searches_kept(wanted.searches)) != wanted.searches:
        told.append(
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {' '.join(kept)}"
        )
    return tuple(told)


def _wanted(pod: Pod, node: NodeDns, cluster_dns: Sequence[str], cluster_domain: str) -> tuple[NodeDns, str]:
    """Before limits."""
    warning = ""
    if pod.spec.dns_policy == "None":
        base = NodeDns()
    elif not _asks_cluster(pod):
        base = node
    elif cluster_dns:
        base = NodeDns(tuple(cluster_dns), _cluster_searches(pod, node, cluster_domain), CLUSTER_OPTIONS)
    else:
        base, warning = node, _missing_cluster_dns(pod)
    return _merged(base, pod.spec.dns_config), warning


def _asks_cluster(pod: Pod) -> bool:
    """On the node's network ClusterFirst means the node's resolver; the longer word is for those who mean it."""
    policy = pod.spec.dns_policy
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod.spec.host_network)


def _cluster_searches(pod: Pod, node: NodeDns, domain: str) -> tuple[str, ...]:
    own = (f"{pod.namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
    return _once((*own, *node.searches))


def _missing_cluster_dns(pod: Pod) -> str:
    return (
        f'pod: "{pod.name}_{pod.namespace}({pod.uid})". kubelet does not have ClusterDNS IP configured and cannot '
        'create Pod using "ClusterFirst" policy. Falling back to "Default" policy.'
    )


def _merged(base: NodeDns, config: DnsConfig | None) -> NodeDns:
    if config is None:
        return base
    return NodeDns(
        _once((*base.servers, *config.nameservers)),
        _once((*base.searches, *config.searches)),
        _options(base.options, config.options),
    )


def _options(base: Iterable[str], more: Iterable[DnsOption]) -> tuple[str, ...]:
    """One of a name each; the pod's word is the last."""
    merged = {name: value for name, _, value in (each.partition(":") for each in base)}
    merged |= {each.name: each.value or "" for each in more}
    return tuple(f"{name}:{value}" if value else name for name, value in merged.items())


def _searches_kept(searches: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    length = -1
    for each in (each for each in searches[:MOST_SEARCHES] if len(each) <= LONGEST_SEARCH):
        length += 1 + len(each)
        if length > LONGEST_SEARCH_LINE:
            break
        kept.append(each)
    return tuple(kept)


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))

"""How a pod is called, its hosts file, its resolv.conf."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.config.dns import (
    LONGEST_SEARCH_LINE,
    MOST_SEARCHES,
    MOST_SERVERS,
    DnsSettings,
    NameTooLong,
    NodeDns,
    hosts_file,
    kernel_name,
    node_dns,
    omitted,
    pod_dns,
    pod_hostname,
)
from podwire.objects import pods

DOMAIN = "cluster.local"
NODE = NodeDns(("192.0.2.53",), ("corp.example",), ("timeout:1", "rotate"))
CLUSTER = ("10.96.0.10",)
SETTINGS = DnsSettings(cluster_servers=CLUSTER, cluster_domain=DOMAIN, node=NODE)
CLUSTER_SEARCHES = ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"]


def pod(name="web", **spec):
    return pods.read({"metadata": {"name": name, "namespace": "shop", "uid": "u-1"}, "spec": spec})


@pytest.mark.parametrize(
    ("given", "hostname", "domain"),
    [
        pytest.param(pod(), "web", "", id="its own name"),
        pytest.param(pod(hostname="front"), "front", "", id="the hostname given"),
        pytest.param(pod(subdomain="db"), "web", "db.shop.svc.cluster.local", id="in a subdomain"),
        pytest.param(pod("a" * 70), "a" * 63, "", id="no longer than a label"),
        pytest.param(pod("a" * 61 + ".-" + "b" * 9), "a" * 61, "", id="never ends with a dot or a dash"),
    ],
)
def test_a_pod_is_called_by_its_hostname(given, hostname, domain):
    assert pod_hostname(given, DOMAIN) == (hostname, domain)
    assert kernel_name(given, DOMAIN) == hostname


def test_the_kernel_knows_a_pod_by_its_whole_name_if_the_pod_wants_that():
    assert kernel_name(pod(subdomain="db", setHostnameAsFQDN=True), DOMAIN) == "web.db.shop.svc.cluster.local"
    assert kernel_name(pod(setHostnameAsFQDN=True), DOMAIN) == "web"


def test_a_whole_name_that_the_kernel_cannot_keep_is_refused():
    with pytest.raises(NameTooLong, match=r"is too long \(64 characters is the max, 67 characters requested\)"):
        kernel_name(pod("w" * 41, subdomain="db", setHostnameAsFQDN=True), DOMAIN)


LOCAL = (
    "# Kubernetes-managed hosts file.\n"
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
ALIASES = [{"ip": "10.1.2.3", "hostnames": ["foo.remote", "bar.remote"]}, {"ip": "::9", "hostnames": ["nine"]}]
ALIAS_LINES = "\n# Entries added by HostAliases.\n10.1.2.3\tfoo.remote\tbar.remote\n::9\tnine\n"


@pytest.mark.parametrize(
    ("given", "domain", "ips", "text"),
    [
        pytest.param(pod(), "", ("10.0.0.5",), LOCAL + "10.0.0.5\tweb\n", id="the pod itself"),
        pytest.param(pod(), "d.e", ("10.0.0.5",), LOCAL + "10.0.0.5\tweb.d.e\tweb\n", id="with its domain"),
        pytest.param(pod(), "", ("10.0.0.5", "fd::5"), LOCAL + "10.0.0.5\tweb\nfd::5\tweb\n", id="two families"),
        pytest.param(pod(hostAliases=ALIASES), "", (), LOCAL + ALIAS_LINES, id="aliases"),
        pytest.param(
            pod(hostNetwork=True, hostAliases=ALIASES),
            "",
            ("192.0.2.1",),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 me\n" + ALIAS_LINES,
            id="on the node's network the node's file",
        ),
    ],
)
def test_a_hosts_file_has_the_name_and_addresses_of_the_pod(given, domain, ips, text):
    assert hosts_file(given, "web", domain, ips, node_hosts="127.0.0.1 me\n") == text


def test_a_resolv_conf_is_read_as_resolvers_do():
    text = "# nameserver 1.1.1.1\nnameserver 192.0.2.1\nnameserver 192.0.2.2 x\nnameserver\nsearch old\n"
    assert node_dns(
        text + "search a.example. b.example .\noptions a ndots:9\noptions ndots:2 rotate\nsortlist x\n"
    ) == NodeDns(("192.0.2.1", "192.0.2.2"), ("a.example", "b.example"), ("a", "ndots:2", "rotate"))


DNS_CONFIG = {
    "nameservers": ["192.0.2.53", "192.0.2.99"],
    "searches": ["corp.example", "more.example"],
    "options": [{"name": "timeout", "value": "9"}, {"name": "edns0"}],
}


@pytest.mark.parametrize(
    ("spec", "servers", "searches", "options"),
    [
        pytest.param({}, list(CLUSTER), CLUSTER_SEARCHES, ["ndots:5"], id="ClusterFirst"),
        pytest.param({"dnsPolicy": "Default"}, *map(list, (NODE.servers, NODE.searches, NODE.options)), id="Default"),
        pytest.param({"hostNetwork": True}, *map(list, (NODE.servers, NODE.searches, NODE.options)), id="hostNetwork"),
        pytest.param(
            {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
            list(CLUSTER),
            CLUSTER_SEARCHES,
            ["ndots:5"],
            id="ClusterFirstWithHostNet",
        ),
        pytest.param(
            {"dnsPolicy": "None", "dnsConfig": DNS_CONFIG},
            ["192.0.2.53", "192.0.2.99"],
            ["corp.example", "more.example"],
            ["timeout:9", "edns0"],
            id="None",
        ),
        pytest.param(
            {"dnsPolicy": "Default", "dnsConfig": DNS_CONFIG},
            ["192.0.2.53", "192.0.2.99"],
            ["corp.example", "more.example"],
            ["timeout:9", "rotate", "edns0"],
            id="merged, nothing twice",
        ),
    ],
)
def test_a_pods_resolver_follows_its_policy(spec, servers, searches, options):
    dns, warning = pod_dns(pod(**spec), SETTINGS)
    assert (list(dns.servers), list(dns.searches), list(dns.options), warning) == (servers, searches, options, "")


def test_without_a_cluster_dns_the_nodes_resolver_is_used_with_a_warning():
    dns, warning = pod_dns(pod(), replace(SETTINGS, cluster_servers=()))
    assert list(dns.servers) == list(NODE.servers)
    assert warning == (
        'pod: "web_shop(u-1)". kubelet does not have ClusterDNS IP configured and cannot create Pod using '
        '"ClusterFirst" policy. Falling back to "Default" policy.'
    )


def test_entries_above_the_resolver_limits_are_omitted_with_a_warning():
    servers = [f"192.0.2.{number}" for number in range(5)]
    searches = [f"{number}.example" for number in range(40)]
    given = pod(dnsPolicy="None", dnsConfig={"nameservers": servers, "searches": ["x" * 254, *searches]})
    dns, _ = pod_dns(given, SETTINGS)
    assert list(dns.servers) == servers[:3]
    assert list(dns.searches) == searches[:31]
    about_servers, about_searches = omitted(given, SETTINGS)
    assert about_servers.endswith("the applied nameserver line is: 192.0.2.0 192.0.2.1 192.0.2.2")
    assert about_searches.startswith("Search Line limits were exceeded, some search paths have been omitted")
    assert omitted(pod(), SETTINGS) == ()


@given(st.lists(st.text("ab.", min_size=1, max_size=300), max_size=50), st.lists(st.text("1.", min_size=1), max_size=6))
def test_no_resolv_conf_is_more_than_a_resolver_takes(searches, servers):
    given_ = pod(dnsPolicy="None", dnsConfig={"nameservers": servers, "searches": searches})
    dns, _ = pod_dns(given_, SETTINGS)
    assert len(dns.servers) <= MOST_SERVERS
    assert len(dns.searches) <= MOST_SEARCHES
    assert len(" ".join(dns.searches)) <= LONGEST_SEARCH_LINE
    left = iter(dict.fromkeys(searches))
    assert all(search in left for search in dns.searches), "order is kept"
    complete = set(dns.searches) == set(searches) and set(dns.servers) == set(servers)
    assert bool(omitted(given_, SETTINGS)) != complete

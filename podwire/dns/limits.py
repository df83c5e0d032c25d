"""Bounds of the DNS server: memory, time, and how much one client may cause."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    ttl: int = 30
    """Seconds for which clients may cache names of the cluster."""
    hosts_ttl: int = 3600
    cache_ttl: int = 30
    """The longest time that an answer of another server is cached here."""
    negative_cache_ttl: int = 30
    cache_entries: int = 10_000
    encoded_entries: int = 10_000
    """Answers that are kept as bytes, one for each form of a query."""
    forwarded_queries: int = 1_000
    """Queries that wait for other servers at the same time."""
    attempt: float = 2.0
    """Seconds for one attempt with one server."""
    patience: float = 5.0
    """Seconds for all attempts: a client's own time-out."""
    failures: int = 2
    """Consecutive failures after which a server is asked last, until it answers again."""
    down: float = 5.0
    """Seconds for which it is."""
    bytes_per_second: int = 8 << 20
    """Bytes that one address receives over UDP; beyond, answers are empty and ask for TCP."""
    client_addresses: int = 65_536
    """Addresses whose bytes are counted in one second."""
    cname_steps: int = 8
    hosts: int = 10_000
    stub_domains: int = 100
    servers: int = 15
    """Servers of one stub domain."""

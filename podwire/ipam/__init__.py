"""Addresses for pods: ranges to choose from, leases that survive anything, and the host-local configuration of both.

Synchronous and light to import. Plugins call it in their own process, daemons in worker threads.
"""

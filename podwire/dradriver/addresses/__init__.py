"""Addresses of claimed interfaces: from pools, named by the claim, or leased by DHCP; no address has two owners."""

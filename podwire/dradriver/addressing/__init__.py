"""Addresses of claimed interfaces: from pools, as the claim says, or leased by DHCP. No address has two owners, and the
same order gets the same address again, whatever was killed meanwhile."""

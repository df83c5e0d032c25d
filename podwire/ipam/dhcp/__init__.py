"""DHCP leases for pods: a client, leases that are renewed and survive their daemon, and the CNI plugin's daemon."""

"""Pod sandboxes and containers on this host: namespaces, networks by CNI, processes by crun or runc. Speaks: cri."""

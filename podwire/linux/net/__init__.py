"""Network namespaces by netlink: links, addresses, routes, rules, neighbours, queueing disciplines."""

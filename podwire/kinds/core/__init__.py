"""The other kinds of the core group, one module each, and their relatives of discovery, events and node.k8s.io."""

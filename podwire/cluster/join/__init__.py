"""Machines that join a cluster: tokens, discovery, certificates, the components of a node, and the network between."""

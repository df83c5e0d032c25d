"""Machines that join: signatures of cluster-info, expired tokens, certificates of nodes, networks of their pods."""

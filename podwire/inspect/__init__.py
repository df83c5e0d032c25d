"""Diagnostics for operators: look at a machine, a cluster, a claim, a network or a policy, and explain it."""

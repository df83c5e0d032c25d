"""Workloads: the kinds of apps and what they share, with their relatives of the core group."""

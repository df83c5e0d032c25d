"""Processes and the namespaces that they run in."""

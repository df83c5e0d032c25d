"""Conformance of plugins: cases from the specifications, run against a plugin in any language, and their report."""

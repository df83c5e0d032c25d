"""The command line: one file per command; the work is done in cluster, inspect and the components."""

"""The node daemon that does the plugins' work without starting an interpreter."""

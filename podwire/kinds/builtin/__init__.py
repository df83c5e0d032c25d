"""The built-in kinds: a folder for each API group, as in upstream's pkg/registry, and in it a module or folder for each
kind with rules of its own."""

"""The live page: serves the state and the traces of a cluster to browsers on this machine."""

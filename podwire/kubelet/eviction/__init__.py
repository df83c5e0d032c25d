"""Eviction: ends pods that exceed limits of local storage, and pods of a node that runs out of a resource."""

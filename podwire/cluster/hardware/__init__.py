"""Simulated hardware of a node: network cards, SR-IOV functions, RDMA devices and GPUs."""

"""The Container Runtime Interface v1: `cri_pb2` are its messages, `methods` its calls.

Both chairs are built from `methods`: the kubelet's calls them through a gRPC client, the runtime's serves them with a
handler each.
"""

"""The Container Runtime Interface v1: `cri_pb2` are its messages, `methods` its calls.

Both sides are built from `methods`: the kubelet calls them through a gRPC client, the runtime serves them with a
handler each.
"""

"""The Container Storage Interface, v1: `csi_pb2` are the messages, `methods` the calls. The driver answers them."""

"""The pod-resources API of a kubelet: `podresources_pb2` are the messages, `methods` the calls."""

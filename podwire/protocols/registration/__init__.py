"""Plugin registration, v1: `registration_pb2` are the messages, `methods` the calls. The plugin answers them."""

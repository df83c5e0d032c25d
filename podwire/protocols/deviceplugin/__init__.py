"""Device plugins, v1beta1: `deviceplugin_pb2` are the messages, `methods` the calls of both sides."""

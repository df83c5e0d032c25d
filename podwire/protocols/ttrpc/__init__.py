"""ttrpc: gRPC's calls without HTTP/2. `wire` is frames and bytes, `mux` is two conversations on one stream, `sides`
are the rules of who may say what when, `ttrpc_pb2` what a frame holds.

Only unary calls: a request, a response. Requests that open streams are refused by name.
"""

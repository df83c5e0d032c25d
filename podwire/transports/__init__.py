"""The only package with sockets and child processes: HTTP, gRPC, ttrpc, WebSockets, SPDY, unix sockets."""

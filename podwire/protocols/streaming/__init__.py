"""Exec, attach and port-forward, as kubectl, kubelets and runtimes speak them; no sockets here.

Over a WebSocket, every message begins with a byte that names its channel; what the channels mean is described in
`server_side`, `client_side` (exec and attach) and `portforward`. Each takes messages in and gives messages out. `spdy`
is what older clients and runtimes of others speak, and `upgrading` how a client says what it wants.
"""

"""Exec, attach and port-forward over a WebSocket, as kubectl, kubelets and runtimes speak it; no sockets here.

Every message begins with a byte that names its channel; what the channels mean is told in `server_side`,
`client_side` (exec and attach) and `portforward`. Each takes messages in and gives messages out. `spdy` is what
runtimes of others speak beside it.
"""

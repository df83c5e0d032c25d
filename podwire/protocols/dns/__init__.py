"""DNS messages (RFC 1035, EDNS0 of RFC 6891): queries from bytes, answers to bytes, answers of others relayed.

No sockets. Untrusted bytes are read here, by code that follows no compression pointer and copies nothing; messages are
built with dnslib, which is only handed what this program knows to be well-formed.
"""

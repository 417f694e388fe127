"""The TLS front: a process that holds the secure port when clients may present certificates, because granian drops those.

It terminates TLS and relays bytes to the workers over Unix sockets. It never parses HTTP, apart from what it takes
to see an upgrade to SPDY and the borders of HTTP/2 frames, and decides nothing about identities. The client's
address and certificates are sent to the worker before the connection (``introduction``), under the address that the
relay's own socket is bound to (``rendezvous``).
"""

"""The TLS front: a process that holds the secure port when clients may show certificates, because the HTTP server drops those.

It ends TLS and relays bytes to the workers over Unix sockets; it never parses HTTP and decides nothing about identities. What a connection
has shown goes to its worker ahead of it (``introduction``), under the address that the relay's own socket is bound to (``rendezvous``).
"""

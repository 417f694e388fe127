"""gRPC as far as etcd needs it, on an HTTP/2 implementation of our own: unary calls and streams of messages, with and without TLS.

``hpack.py`` reads and writes header blocks, ``http2.py`` is a connection without a socket, ``status.py`` has the outcomes of
calls; ``blocking.py`` and ``looped.py`` attach a connection to a socket, for threads and for an event loop. grpcio is not
used because a call through it costs several times as much CPU (docs/architecture.md has the numbers). The path of every call
is compiled (``_wire.pxd``).
"""

from kas.store.etcd.rpc._wire import Change, PutIf, Question, Stream, Undecoded, Watched, succeeded_at, watched

__all__ = ["Change", "PutIf", "Question", "Stream", "Undecoded", "Watched", "succeeded_at", "watched"]

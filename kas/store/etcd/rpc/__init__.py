"""gRPC as far as etcd needs it, over HTTP/2 of our own: calls with one request, streams of messages, with and without TLS.

``hpack.py`` reads and writes header blocks, ``http2.py`` is one connection without a socket, ``status.py`` what calls end with;
``blocking.py`` and ``looped.py`` bring a connection to a socket, for threads and for an event loop. Why not grpcio: a call through it costs
several times as much CPU (docs/architecture.md has the numbers). What every call passes is compiled (``_wire.pxd``).
"""

from kas.store.etcd.rpc._wire import Change, PutIf, Question, Stream, Undecoded, Watched, succeeded_at, watched

__all__ = ["Change", "PutIf", "Question", "Stream", "Undecoded", "Watched", "succeeded_at", "watched"]

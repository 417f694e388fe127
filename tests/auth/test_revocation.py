"""Cached verdicts on tokens are dropped when tokens may have been revoked."""

from kas.auth.authn.revocation import Revocation
from kas.store import Op, build_record, open_store


def test_caches_are_notified(tmp_path):
    store = open_store(str(tmp_path), sync=False)
    try:
        told = []
        revocation = Revocation(store, ["/registry/secrets/", "/registry/pods/"])
        revocation.start()
        revocation.listeners.append(lambda: told.append(1))
        store.commit_now(Op("/registry/secrets/ns/a", build_record(b'{"metadata":{', b"}}")))
        store.commit_now(Op("/registry/nodes/n", build_record(b'{"metadata":{', b"}}")))
        store.commit_now(Op("/registry/nodes/n", None))
        store.hub.catch_up()
        assert told == []
        store.commit_now(Op("/registry/secrets/ns/a", None))
        store.hub.catch_up()
        assert told == [1]
        store.commit_now(Op("/registry/pods/ns/p", build_record(b'{"metadata":{', b"}}")))
        store.compact(store.revision, 1000)
        store.hub.catch_up()
        assert len(told) > 1
    finally:
        store.close()

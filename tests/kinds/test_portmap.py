"""The bitmap of node ports, and its repair."""

from __future__ import annotations

from kas.kinds.core.service.allocation.portmap import KEY, LEAK_PASSES, PortMap
from kas.store import open_store


def test_what_services_do_not_hold_goes_after_some_passes(tmp_path):
    store = open_store(str(tmp_path / "s"), sync=False)
    try:
        bits = PortMap(store, 30000, 30063)
        op = bits.repaired({30001})
        assert op is not None
        store.commit_now(op)
        assert bits.all_taken() == {30001} and bits.taken(30001) and not bits.taken(30002) and not bits.taken(29999)
        assert bits.repaired({30001}) is None
        store.commit_now(*bits.op({30005, 40000}, ()))  # taken, and no Service has it
        for _ in range(LEAK_PASSES - 1):
            assert bits.repaired({30001}) is None
        op = bits.repaired({30001, 30003})
        assert op is not None
        store.commit_now(op)
        assert bits.all_taken() == {30001, 30003}
        assert bits.op({40000}, ()) == []
        # Another range was configured: everything is written anew.
        other = PortMap(store, 30000, 30127)
        assert other.all_taken() == set()
        op = other.repaired({30003})
        assert op is not None
        store.commit_now(op)
        assert other.all_taken() == {30003} and bits.all_taken() == set()
        assert store.get(KEY) is not None
    finally:
        store.close()

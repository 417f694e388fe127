"""Opens a damaged data directory and reads all of it; prints the result. Run as a program, so that a crash ends only this process."""

from __future__ import annotations

import sys

from kas.store import Op, StoreError, build_record, open_store


def main(path: str) -> None:
    store = None
    try:
        store = open_store(path, max_size=64 << 20, sync=False)
        store.range("/registry/")
        store.range_json("/registry/")
        store.range("/registry/", revision=max(1, store.revision - 20))
        store.events("/registry/", store.compacted_revision, 1000)
        for i in range(40):
            store.get(f"/registry/x/{i:03d}")
        store.statistics()
        store.commit_now(Op("/registry/x/000", build_record(b'{"metadata":{', b'"x":1}}'), None))
        store.commit_now(Op("/registry/x/039", None, None))
        store.compact(store.revision // 2)
        print("served")
    except StoreError as e:
        print(f"refused {type(e).__name__}")
    finally:
        if store is not None:
            store.close()


if __name__ == "__main__":
    for path in sys.argv[1:]:
        main(path)

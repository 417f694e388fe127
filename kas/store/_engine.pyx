"""The compiled core of the store: records, selectors, frames, the engine, scans, history, the group commit, shared memory.

The design page is ``_engine.pxd``; ``_engine.pyi`` has the types for Python callers. Only functions on bytes: no event loop,
no logging. Must not import anything of kas.
"""

include "engine/lmdb.pxi"
include "engine/block.pxi"
include "engine/splice.pxi"
include "engine/record.pxi"
include "engine/draft.pxi"
include "engine/seal.pxi"
include "engine/match.pxi"
include "engine/frame.pxi"
include "engine/env.pxi"
include "engine/gather.pxi"
include "engine/scan.pxi"
include "engine/history.pxi"
include "engine/watching.pxi"
include "engine/upkeep.pxi"
include "engine/write.pxi"
include "engine/commit.pxi"
include "engine/shared.pxi"

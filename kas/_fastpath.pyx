"""The compiled core of the store: records, selectors, frames, the engine, scans, history, the group commit, shared memory.

One unit of several parts; each part under fastpath/ opens with what it does and what it trusts. Functions over bytes: no event
loop, no logging. May import nothing of kas.
"""

include "fastpath/lmdb.pxi"
include "fastpath/record.pxi"
include "fastpath/match.pxi"
include "fastpath/frame.pxi"
include "fastpath/env.pxi"
include "fastpath/scan.pxi"
include "fastpath/history.pxi"
include "fastpath/commit.pxi"
include "fastpath/shared.pxi"

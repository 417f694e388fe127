"""Checks: trees, built once, that tell of documents whether they are certainly valid. ``_engine.pxd`` has the design.

Bounds checks are off in the whole unit: lists are indexed below the size read in the same step, texts below their length, slots and scopes
below their counts.
"""

from kas.meta.offload import LOOP_BUDGET, abandoned

include "../fastpath/codecs/yieldgil.pxi"
include "engine/texts.pxi"
include "engine/walk.pxi"
include "engine/build.pxi"
include "engine/looks.pxi"

"""The walks of structured-merge-diff: comparing, merging, collecting and removing fields by their list and map semantics.

Upstream: structured-merge-diff v6, ``typed/*`` and ``fieldpath/set.go``.

A set of field paths *is* its FieldsV1 JSON form, a dict of dicts, so stored managedFields need neither parsing nor printing. A child has
one of three shapes: ``{}`` if its path is a member; ``{".": {}, "f:x": ...}`` if it is a member and has members below it; ``{"f:x": ...}``
if only paths below it are members. Sets are never changed once returned: operations share unchanged subtrees, and return their argument
itself when nothing changes.

Input must be JSON values of bounded depth (the decoder refuses deeper documents). Types are checked, because an object may contradict its
schema; then ``Mismatch`` is raised. Benchmarks: bench/test_fieldmanager.py.
"""

import re
from json import JSONDecoder

import orjson

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bool cimport PyBool_Check
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_Compare, PyUnicode_GET_LENGTH
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

cimport cython
from kas._codecs cimport SharedFields, shared_of

include "../fastpath/codecs/buffer.pxi"
include "../fastpath/codecs/yieldgil.pxi"
include "../fastpath/codecs/sorting.pxi"
include "fieldsets/node.pxi"
include "fieldsets/value.pxi"
include "fieldsets/element.pxi"
include "fieldsets/sets.pxi"
include "fieldsets/compare.pxi"
include "fieldsets/created.pxi"
include "fieldsets/toset.pxi"
include "fieldsets/validate.pxi"
include "fieldsets/merge.pxi"
include "fieldsets/reconcile.pxi"
include "fieldsets/updated.pxi"

"""Table-driven codecs of typed objects: JSON and Kubernetes protobuf, in both directions, without a class per kind.

A type is a ``TypeDesc`` made from a row of ``kas/api/tables/types.json``; an object is a plain ``dict``. One walk over a decoded
JSON document checks it against its type, drops what is unknown, canonicalises scalars and gives the form the encoders expect.

The parts, in order of dependency: ``desc`` (tables), ``buffer`` (output), ``strings`` (JSON text), ``scan`` (raw JSON: duplicate
fields), ``decode``, ``encode``, ``protobuf``, ``transcode``; ``meta`` stands alone. Bounds checks are off in the whole unit; each part says what makes that safe.
"""

from cpython.dict cimport PyDict_Next, PyDict_GetItem, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

import base64
import json
import threading

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object o, Py_ssize_t* size) except NULL
    int PyUnicode_Compare(PyObject* a, PyObject* b)
    bint PyUnicode_CheckExact(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)

include "fasttypes/desc.pxi"
include "fasttypes/buffer.pxi"
include "fasttypes/strings.pxi"
include "fasttypes/scalar.pxi"
include "fasttypes/decode.pxi"
include "fasttypes/encode.pxi"
include "fasttypes/wire.pxi"
include "fasttypes/protobuf.pxi"
include "fasttypes/pbdecode.pxi"
include "fasttypes/transcode.pxi"
include "fasttypes/scan.pxi"
include "fasttypes/meta.pxi"

"""Table-driven codecs of typed objects: JSON and Kubernetes protobuf, in both directions, without a class per kind.

A type is a ``TypeDesc`` made from a row of ``kas/types/tables/types.json``; an object is a plain ``dict``. One walk over a decoded JSON
document checks it against its type, drops unknown fields, canonicalises scalars and returns the form that the encoders expect.

The parts, in order of dependency: ``utf8``, ``buffer`` (output), ``yieldgil``, ``sorting``, ``desc`` (tables), ``tape`` (tokens),
``strings`` (JSON text), ``scalar``, ``decode``, ``schema`` (types created at run time), ``plain``, ``encode``, ``unstructured``,
``numbers``, ``wire``, ``protobuf``, ``pbdecode``, ``transcode``, ``strict``, ``pairs``, ``syntax``, ``scan``, ``pieces`` and ``sharing``
(raw JSON), ``cbor``, ``weight``. Bounds checks are off in the whole unit; each part states why that is safe.
"""

cimport cython
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_GetItem, PyDict_SetItem, PyDict_Size
from cpython.long cimport PyLong_FromVoidPtr
from cpython.list cimport PyList_Append, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

cdef extern from "<string.h>":
    void* memmem(const void* where, size_t n, const void* what, size_t m) noexcept

import base64
import datetime as _datetime
import json
import math
import re as _re
import struct
import sys
import threading

cdef extern from *:
    """
    #ifdef __SSE2__
    #include <emmintrin.h>  /* what every x86-64 has: sixteen bytes at a time where there are as many */
    #endif

    /* The bytes of a str whose UTF-8 form is its own memory, as nearly all keys and values are; else NULL. */
    static inline const char *kas_ascii(PyObject *s, Py_ssize_t *n)
    {
        if (!PyUnicode_Check(s) || !PyUnicode_IS_COMPACT_ASCII(s))
            return NULL;
        *n = PyUnicode_GET_LENGTH(s);
        return (const char *)PyUnicode_DATA(s);
    }

    /* Copies bytes up to the first that JSON text must escape, or that may begin U+2028; says how many. Eight at a time: */
    /* (y - 0x01...) & ~y & 0x80... is not zero where a byte of y is, and perhaps behind it, which only costs the slow loop. */
    static inline Py_ssize_t kas_copy_plain(char *out, const char *s, Py_ssize_t n, const uint8_t *escape)
    {
        const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
        Py_ssize_t i = 0;
    #ifdef __SSE2__
        for (; n - i >= 16; i += 16) {
            const __m128i x = _mm_loadu_si128((const __m128i *)(s + i));
            const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1F)), x);
            const __m128i quote = _mm_cmpeq_epi8(_mm_or_si128(x, _mm_set1_epi8(4)), _mm_set1_epi8(0x26));
            const __m128i angle = _mm_cmpeq_epi8(_mm_or_si128(x, _mm_set1_epi8(2)), _mm_set1_epi8(0x3E));
            const __m128i slash = _mm_cmpeq_epi8(x, _mm_set1_epi8(0x5C)), line = _mm_cmpeq_epi8(x, _mm_set1_epi8((char)0xE2));
            if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(low, quote), _mm_or_si128(angle, _mm_or_si128(slash, line)))))
                break;
            _mm_storeu_si128((__m128i *)(out + i), x);
        }
    #endif
        for (; n - i >= 8; i += 8) {
            uint64_t x, quote, angle, slash, line;
            memcpy(&x, s + i, 8);
            quote = (x | ones * 4) ^ ones * 0x26;  /* " and & */
            angle = (x | ones * 2) ^ ones * 0x3E;  /* < and > */
            slash = x ^ ones * 0x5C;
            line = x ^ ones * 0xE2;
            if ((((x - ones * 0x20) & ~x) | ((quote - ones) & ~quote) | ((angle - ones) & ~angle) | ((slash - ones) & ~slash)
                 | ((line - ones) & ~line)) & high)
                break;
            memcpy(out + i, &x, 8);
        }
        for (; i < n && !escape[(unsigned char)s[i]]; i++)
            out[i] = s[i];
        return i;
    }

    /* How many bytes of [s, end) are certainly no quote, no backslash and no control character, where they are looked at by sixteens; bits of
       all of them are added to seen. */
    static inline Py_ssize_t kas_unquoted(const char *s, const char *end, uint64_t *seen)
    {
        const char *p = s;
    #ifdef __SSE2__
        __m128i all = _mm_setzero_si128();
        for (; end - p >= 16; p += 16) {
            const __m128i x = _mm_loadu_si128((const __m128i *)p);
            const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1F)), x);
            const __m128i quote = _mm_cmpeq_epi8(x, _mm_set1_epi8(0x22)), slash = _mm_cmpeq_epi8(x, _mm_set1_epi8(0x5C));
            if (_mm_movemask_epi8(_mm_or_si128(low, _mm_or_si128(quote, slash))))
                break;
            all = _mm_or_si128(all, x);
        }
        if (_mm_movemask_epi8(all))
            *seen |= 0x80;
    #endif
        return p - s;
    }

    /* How many bytes there are up to the first that is no printable ASCII, or a quote or backslash. Eight at a time, as above. */
    static inline Py_ssize_t kas_printable(const char *s, Py_ssize_t n)
    {
        const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
        Py_ssize_t i = 0;
        for (; n - i >= 8; i += 8) {
            uint64_t x, quote, slash, last;
            memcpy(&x, s + i, 8);
            quote = x ^ ones * 0x22;
            slash = x ^ ones * 0x5C;
            last = x ^ ones * 0x7F;
            if ((x | (x - ones * 0x20) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((last - ones) & ~last)) & high)
                break;
        }
        for (; i < n && s[i] >= 0x20 && s[i] < 0x7F && s[i] != 0x22 && s[i] != 0x5C; i++)
            ;
        return i;
    }
    """
    const char* kas_ascii(PyObject* s, Py_ssize_t* n) noexcept
    Py_ssize_t kas_copy_plain(char* out, const char* s, Py_ssize_t n, const uint8_t* escape) noexcept
    Py_ssize_t kas_printable(const char* s, Py_ssize_t n) noexcept
    Py_ssize_t kas_unquoted(const char* s, const char* end, uint64_t* seen) noexcept nogil

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object o, Py_ssize_t* size) except NULL
    int PyUnicode_Compare(PyObject* a, PyObject* b)
    bint PyUnicode_CheckExact(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_DATA(object o)
    long long PyLong_AsLongLongAndOverflow(object o, int* overflow) except? -1

include "fastpath/codecs/utf8.pxi"
include "fastpath/codecs/buffer.pxi"
include "fastpath/codecs/yieldgil.pxi"
include "fastpath/codecs/sorting.pxi"
include "fastpath/codecs/desc.pxi"
include "fastpath/codecs/tape.pxi"
include "fastpath/codecs/strings.pxi"
include "fastpath/codecs/scalar.pxi"
include "fastpath/codecs/decode.pxi"
include "fastpath/codecs/schema.pxi"
include "fastpath/codecs/plain.pxi"
include "fastpath/codecs/encode.pxi"
include "fastpath/codecs/unstructured.pxi"
include "fastpath/codecs/numbers.pxi"
include "fastpath/codecs/wire.pxi"
include "fastpath/codecs/protobuf.pxi"
include "fastpath/codecs/pbdecode.pxi"
include "fastpath/codecs/transcode.pxi"
include "fastpath/codecs/strict.pxi"
include "fastpath/codecs/pairs.pxi"
include "fastpath/codecs/syntax.pxi"
include "fastpath/codecs/scan.pxi"
include "fastpath/codecs/pieces.pxi"
include "fastpath/codecs/sharing.pxi"
include "fastpath/codecs/cbor.pxi"
include "fastpath/codecs/weight.pxi"

# Encodes the typed form as canonical JSON: Go's field order, omitempty, sorted map keys. Objects come from decode() and from kas' own code;
# a value of a wrong type raises EncodeError and never writes outside the buffer.

cdef object bad_value(TypeDesc owner, Field f, object v):
    return EncodeError(f"{owner.kind_name}.{f.name or f.pb_name}: cannot write a {type(v).__name__} as {f.go_type()}")


cdef int put_element(Buf* b, TypeDesc owner, Field f, object v, Split* s, int depth) except -1:
    cdef Py_ssize_t start = b.n
    if f.kind == K_STRING and PyUnicode_CheckExact(v):
        b.escaped = False
        put_str(b, v)
        return 0 if s.tape == NULL else tape_note(s.tape, b, start)
    if f.kind == K_STRUCT:
        if v is None:
            v = zero_struct(f.target)
        if isinstance(v, dict):
            return put_struct(b, f.target, <dict>v, s, depth)
        raise bad_value(owner, f, v)
    if s.tape == NULL:
        return put_plain(b, owner, f, v, s, depth)
    if f.kind == K_STRLIST or K_SCHEMA_ARRAY <= f.kind <= K_SCHEMA_STRINGS:
        s.retape = True
    b.escaped = False
    put_plain(b, owner, f, v, s, depth)
    return tape_note(s.tape, b, start)


cdef int put_plain(Buf* b, TypeDesc owner, Field f, object v, Split* s, int depth) except -1:
    """Writes a value that is not a struct."""
    cdef int kind = f.kind
    cdef bytes text
    cdef SharedFields shared
    if v is None:
        if kind in (K_STRING, K_INT32, K_INT64, K_BOOL, K_DOUBLE, K_QUANTITY, K_DURATION, K_INTSTR):
            v = zero_value(f)
        elif kind == K_BYTES and s.stored:
            s.differs = True
            return put(b, b'""', 2)
        else:
            return put(b, b"null", 4)
    if kind == K_STRING:
        if isinstance(v, str):
            return put_str(b, v)
    elif kind == K_BOOL:
        if v is True:
            return put(b, b"true", 4)
        if v is False:
            return put(b, b"false", 5)
    elif kind == K_INT32 or kind == K_INT64:
        if isinstance(v, int) and v is not True and v is not False and -9223372036854775808 <= v <= 9223372036854775807:
            return put_int(b, v)
    elif kind == K_INTSTR:
        if isinstance(v, str):
            return put_str(b, v)
        if isinstance(v, int) and -9223372036854775808 <= v <= 9223372036854775807:
            return put_int(b, v)
    elif kind == K_RAW or kind == K_UNKNOWN:
        if kind == K_RAW and PyDict_CheckExact(v):
            shared = shared_of(<dict>v)
            if shared is not None and depth + SHARED_DEPTH <= b.deepest:
                return put_bytes(b, shared.text)
        return put_value(b, v, AS_IT_IS, depth)
    elif kind == K_DOUBLE:
        if isinstance(v, (int, float)):
            text = go_float(float(v)).encode()
            return put_bytes(b, text)
    elif kind == K_STRLIST:
        return put_value(b, v, AS_IT_IS, depth)
    elif kind in (K_SCHEMA_ARRAY, K_SCHEMA_BOOL, K_SCHEMA_STRINGS):
        return put_schema_union(b, f, v, s, depth)
    elif isinstance(v, str):  # quantities, times, durations and bytes are texts in JSON
        return put_str(b, v)
    elif isinstance(v, (int, float)) and kind == K_QUANTITY:
        return put_str(b, canonical_quantity(v))
    raise bad_value(owner, f, v)


cdef int put_schema_union(Buf* b, Field f, object v, Split* s, int depth) except -1:
    cdef Field schema
    cdef bint first = True
    if not f.target.compiled:
        f.target._compile()
    schema = f.target.pb_by_number[2] if f.kind == K_SCHEMA_BOOL else f.target.pb_by_number[1]
    if isinstance(v, dict):
        return put_struct(b, schema.target, <dict>v, s, depth)
    if v is True or v is False:
        return put(b, b"true", 4) if v else put(b, b"false", 5)
    if isinstance(v, list) and f.kind == K_SCHEMA_STRINGS:
        return put_value(b, v, AS_IT_IS, depth)
    if isinstance(v, list):
        put_c(b, 91)
        for item in <list>v:
            if not first:
                put_c(b, 44)
            first = False
            put_element(b, f.target, schema, item, s, depth)
        return put_c(b, 93)
    raise bad_value(f.target, f, v)


cdef int put_map(Buf* b, TypeDesc owner, Field f, dict v, Split* s, int depth) except -1:
    cdef PyObject* key
    cdef PyObject* val
    cdef Py_ssize_t pos = 0, at = -1, start
    if s.tape != NULL:
        at = tape_open(s.tape, 123, b.n)
    start = b.n
    put_c(b, 123)
    if keys_sorted(v):
        while PyDict_Next(v, &pos, &key, &val):
            put_key(b, <object>key, s, start)
            yield_gil(1)
            put_element(b, owner, f, <object>val, s, depth + 1)
    else:
        for k in sort_in_turns(list(v)):
            yield_gil(1)
            put_key(b, k, s, start)
            put_element(b, owner, f, v[k], s, depth + 1)
    put_c(b, 125)
    if at >= 0:
        tape_close(s.tape, at, b.n)
    return 0


cdef inline int put_key(Buf* b, object key, Split* s, Py_ssize_t start) except -1:
    """Writes a key of a map that began at ``start``, with the comma before it and the colon after it."""
    if b.n != start + 1:
        put_c(b, 44)
    start = b.n
    b.escaped = False
    put_str(b, key)
    if s.tape != NULL:
        tape_note(s.tape, b, start)
    return put_c(b, 58)


cdef int put_list(Buf* b, TypeDesc owner, Field f, list v, Split* s, int depth) except -1:
    cdef Py_ssize_t i, at = -1
    cdef object item
    if s.tape != NULL:
        at = tape_open(s.tape, 91, b.n)
    put_c(b, 91)
    for i in range(PyList_GET_SIZE(v)):
        if i:
            put_c(b, 44)
        item = v[i]
        yield_gil(1)
        put_element(b, owner, f, item, s, depth + 1)
    put_c(b, 93)
    if at >= 0:
        tape_close(s.tape, at, b.n)
    return 0


cdef int gather(TypeDesc t, dict obj, PyObject** slots) except -1:
    """Collects the values of an object by the index of their field; None counts as absent. The references are borrowed from ``obj``."""
    cdef PyObject* key
    cdef PyObject* val
    cdef Py_ssize_t pos = 0
    cdef int i
    memset(slots, 0, t.n_flat * sizeof(PyObject*))
    while PyDict_Next(obj, &pos, &key, &val):
        if val != <PyObject*>None:
            i = t.find_str(key)
            if i >= 0:
                slots[i] = val
    return 0


cdef int put_struct(Buf* b, TypeDesc t, dict obj, Split* s, int depth) except -1:
    cdef FieldInfo* info
    cdef PyObject* slots[MAX_FIELDS]
    cdef PyObject* found  # a value, borrowed from the object
    cdef bint first = True, splitting, empty
    cdef int i
    cdef Py_ssize_t at = -1, key
    if depth > b.deepest:
        raise EncodeError("exceeded max depth")
    if not t.compiled:
        t._compile()
    gather(t, obj, slots)
    splitting = s.on and depth == 1 and t.revision_at >= 0
    if s.tape != NULL:
        at = tape_open(s.tape, 123, b.n)
    put_c(b, 123)
    for i in range(t.n_flat):
        info = t.infos + i
        found = slots[i]
        if splitting and i == t.revision_at and s.cut < 0:
            if not first:
                put_c(b, 44)
            s.cut = b.n
            first = True
            continue
        empty = False
        if found == NULL:
            if info.absent == A_SKIP:
                continue
            empty = info.absent == A_NULL
        else:
            if info.card == C_SINGLE:
                if info.drop_zero and not <object>found:
                    continue
            elif not (isinstance(<object>found, list) if info.card == C_LIST else isinstance(<object>found, dict)):
                raise bad_value(t, <Field>info.field, <object>found)
            elif not <object>found:
                if (<Field>info.field).omitempty:
                    continue
                empty = s.stored
                s.differs |= empty
        put(b, info.key + first, info.key_n - first)
        first = False
        if s.tape != NULL:
            key = tape_open(s.tape, 34, b.n - info.key_n + 2)
            s.tape.t[key].place = i
            tape_close(s.tape, key, b.n - 2)
        if empty:
            put(b, b"null", 4)
            if s.tape != NULL:
                tape_note(s.tape, b, b.n - 4)
        elif found == NULL:
            put_element(b, t, <Field>info.field, None, s, depth + 1)
        elif info.card == C_SINGLE:
            put_element(b, t, <Field>info.field, <object>found, s, depth + 1)
        elif info.card == C_LIST:
            put_list(b, t, <Field>info.field, <list>found, s, depth)
        else:
            put_map(b, t, <Field>info.field, <dict>found, s, depth)
        if s.on and depth == 0 and i == 1 and (<Field>info.field).type_meta:
            s.prefix = b.n + 1
    put_c(b, 125)
    if at >= 0:
        tape_close(s.tape, at, b.n)
    if splitting and s.end < 0:
        s.end = b.n
    return 0


def encode_json(TypeDesc type not None, dict obj not None, *, bint stored=False):
    """The object as kube-apiserver writes it, without the final newline: ``kind`` and ``apiVersion`` first, then Go's field order. An
    object of a type made from a schema has its keys sorted at every level.

    ``stored`` writes the form that a protobuf round trip through etcd leaves: an empty list or map that is always written becomes null.
    """
    cdef Buf b
    cdef Split s
    if type.custom:
        return unstructured_json(obj)
    s.on = False
    s.stored = stored
    s.cut = -1
    s.tape = NULL
    buf_init(&b, 4096)
    try:
        put_struct(&b, type, obj, &s, 0)
    except:
        free(b.p)
        raise
    return finish(&b)


def stored_as_json(TypeDesc type not None):
    """Whether upstream stores objects of the type as JSON (CRDs, APIServices) and not as protobuf."""
    return type.name.startswith(("io.k8s.apiextensions-apiserver.", "io.k8s.kube-aggregator."))


def encode_json_split(TypeDesc type not None, dict obj not None, *, stored=None):
    """Returns ``(head, tail, type_prefix_len, metadata_tail)``: the bytes of encode_json(), split where metadata.resourceVersion belongs.

    ``head + b'"resourceVersion":"123",' + tail`` is the canonical object. The comma is omitted when ``tail`` begins with ``}``: then
    nothing follows in the metadata, as in objects without a creationTimestamp from other writers. A resourceVersion in ``obj`` is ignored.

    ``type_prefix_len`` is the length of ``{"kind":"Pod","apiVersion":"v1",``. ``metadata_tail`` is the number of bytes of ``tail`` that
    belong to the metadata, if the metadata directly follow that prefix, else 0. ``stored`` is as in encode_json; the default is true unless
    stored_as_json(type). Raises EncodeError when the object has no metadata.
    """
    cdef Buf b
    cdef Split s
    s.tape = NULL
    buf_init(&b, 8192)
    try:
        put_split(&b, type, obj, &s, stored)
        return split_parts(&b, &s)
    finally:
        free(b.p)


# An object with fewer keys and values than this is transcoded when protobuf is requested, which takes some microseconds: storing both forms
# would cost each write another page. A typical ConfigMap or Lease has about 80, a pod 600.
cdef enum:
    KEPT_TOKENS = 256

# Later readers of a stored object (YAML, comparisons, schemas) recurse over its levels. Go's decoders stop at 10,000.
cdef enum:
    STORED_DEPTH = 500


def encode_stored(TypeDesc type not None, dict obj not None, *, stored=None, Py_ssize_t least=KEPT_TOKENS):
    """The stored form of an object: ``(head, tail, type_prefix_len, metadata_tail, message)``, see encode_json_split().

    ``message`` is transcode_json_to_protobuf() of ``head + tail``, so its resourceVersion is empty. It is None for objects with fewer than
    ``least`` keys and values, and for those without a protobuf form, such as one with an unchecked time. Raises EncodeError ("exceeded max
    depth") for more than 500 levels.
    """
    return _stored(type, obj, stored, least, None)


def encode_both(TypeDesc type not None, dict obj not None):
    """Returns ``(encode_stored(type, obj), text)``: ``text`` is encode_json() of the same object if it is a by-product, else None."""
    cdef list text = []
    stored = _stored(type, obj, None, KEPT_TOKENS, text)
    return stored, text[0] if text else None


cdef tuple _stored(TypeDesc type, dict obj, object stored, Py_ssize_t least, list text):
    """Implements encode_stored(). If ``text`` is a list, the bytes of encode_json() are appended to it when they are a by-product."""
    cdef Buf b
    cdef Split s
    cdef Tape tape
    cdef bytes message = None
    if type.custom:
        return unstructured_split(type, obj)
    buf_init(&b, 8192)
    b.deepest = STORED_DEPTH
    try:
        tape_init(&tape, 1024)
        s.tape = &tape
        s.retape = False
        put_split(&b, type, obj, &s, stored)
        tape.s, tape.size = b.p, b.n
        if b.n <= 0x7FFF0000:
            try:
                if s.retape:
                    tape.n = 0
                    tape_build(&tape)
                if tape.n >= least:
                    message = tape_protobuf(&tape, type, None, None)
            except DecodeError:
                message = None
        if text is not None and not s.differs and b.p[s.cut] == 34:  # a key of the metadata follows the cut
            put_revised(&b, s.cut, obj["metadata"], text)
        return *split_parts(&b, &s), message
    finally:
        free(b.p)
        tape_free(&tape)


cdef int put_revised(Buf* b, Py_ssize_t cut, dict meta, list text) except -1:
    """Appends the written text to ``text``, with the metadata's resourceVersion inserted at the cut; nothing if that is not a text."""
    cdef object revision = meta.get("resourceVersion")
    if not revision:
        text.append(PyBytes_FromStringAndSize(b.p, b.n))
    elif PyUnicode_CheckExact(revision):
        text.append(b.p[:cut] + b'"resourceVersion":' + write_json(revision) + b"," + b.p[cut:b.n])
    return 0


cdef int put_split(Buf* b, TypeDesc type, dict obj, Split* s, object stored) except -1:
    s.on = True
    s.stored = not stored_as_json(type) if stored is None else stored
    s.cut = s.end = -1
    s.prefix = 1
    s.differs = False
    put_struct(b, type, obj, s, 0)
    if s.cut < 0:
        raise EncodeError(f"{type.kind_name}: there is no metadata")
    return 0


cdef tuple split_parts(Buf* b, Split* s):
    cdef bint leads = b.n - s.prefix > 12 and memcmp(b.p + s.prefix, b'"metadata":{', 12) == 0
    return (PyBytes_FromStringAndSize(b.p, s.cut), PyBytes_FromStringAndSize(b.p + s.cut, b.n - s.cut), s.prefix,
            s.end - s.cut if leads else 0)

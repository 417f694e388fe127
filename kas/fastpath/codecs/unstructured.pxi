# Encodes objects of types made from schemas: upstream stores and sends them as maps, so each level has sorted keys.
#
# The object is validated, except where its schema preserves unknown fields: depth is bounded by the buffer's ``deepest``.


cdef int put_unstructured_split(Buf* b, dict obj, Split* s) except -1:
    """Writes the object, split where metadata.resourceVersion belongs; an existing one is omitted."""
    cdef bint first = True, first_in
    cdef object meta
    put_c(b, 123)
    for key in sorted(obj):
        if not first:
            put_c(b, 44)
        first = False
        put_str(b, key)
        put_c(b, 58)
        if key != "metadata":
            put_value(b, obj[key], UNSTRUCTURED, 1)
            continue
        meta = obj[key]
        put_c(b, 123)
        first_in = True
        for name in sorted(<dict?>meta):
            if name == "resourceVersion":
                continue
            if name > "resourceVersion" and s.cut < 0:
                if not first_in:
                    put_c(b, 44)
                s.cut = b.n
                first_in = True
            if not first_in:
                put_c(b, 44)
            first_in = False
            put_str(b, name)
            put_c(b, 58)
            put_value(b, meta[name], UNSTRUCTURED, 2)
        if s.cut < 0:
            if not first_in:
                put_c(b, 44)
            s.cut = b.n
        put_c(b, 125)
    return put_c(b, 125)


cdef bytes unstructured_json(dict obj):
    cdef Buf b
    buf_init(&b, 4096)
    try:
        put_value(&b, obj, UNSTRUCTURED, 0)
    except:
        free(b.p)
        raise
    return finish(&b)


cdef tuple unstructured_split(TypeDesc type, dict obj):
    """The result of encode_stored(): ``(head, tail, 1, 0, None)``. List items keep kind and apiVersion, and there is no protobuf form."""
    cdef Buf b
    cdef Split s
    s.cut = -1
    buf_init(&b, 8192)
    b.deepest = STORED_DEPTH
    try:
        put_unstructured_split(&b, obj, &s)
        if s.cut < 0:
            raise EncodeError(f"{type.kind_name}: there is no metadata")
        return (PyBytes_FromStringAndSize(b.p, s.cut), PyBytes_FromStringAndSize(b.p + s.cut, b.n - s.cut), 1, 0, None)
    finally:
        free(b.p)

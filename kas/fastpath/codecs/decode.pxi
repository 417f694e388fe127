# Converts decoded JSON to the typed form. The document is untrusted; recursion is bounded by MAX_DEPTH. Positions are a linked list of Path
# frames on the C stack, so that a walk without errors builds no path text.

cdef struct Path:
    Path* up
    PyObject* field  # Field, borrowed, or NULL
    PyObject* key    # key of a map, borrowed, or NULL
    Py_ssize_t index


cdef class _Walk:
    cdef list unknown
    cdef set seen
    cdef bint inexact  # a float occurs where its literal text matters
    cdef int quiet  # inside types with their own UnmarshalJSON, unknown fields are not reported
    cdef bint keyless  # paths of unknown fields omit map keys
    cdef TypeDesc root


cdef str strict_path(Path* p, bint keyless=False):
    cdef list parts = []
    while p != NULL:
        if p.key != NULL and keyless:
            pass
        elif p.key != NULL:
            parts.append("." + <str><object>p.key)
        elif p.field != NULL:
            parts.append("." + (<Field><object>p.field).name)
        elif p.index >= 0:
            parts.append(f"[{p.index}]")
        p = p.up
    parts.reverse()
    return "".join(parts).removeprefix(".")


cdef object mismatch(_Walk w, Path* p, TypeDesc struct_type, str value, str go_type):
    """Go's json.UnmarshalTypeError: it names the innermost struct and the path of fields, without indices and keys. A field of an embedded
    struct follows the name of that struct. Inside types with their own UnmarshalJSON, the struct around those types is named, which is
    always a schema.
    """
    cdef str struct_name = None if struct_type is None else "JSONSchemaProps" if w.quiet else struct_type.kind_name
    cdef list fields = []
    cdef list names = []
    cdef TypeDesc holder = None
    cdef Field f
    if struct_name is None:
        return DecodeError(f"json: cannot unmarshal {value} into Go value of type {go_type}")
    while p != NULL:
        if p.field != NULL:
            fields.append(<Field><object>p.field)
        if p.up == NULL and p.field != NULL:
            holder = w.root
        p = p.up
    fields.reverse()
    for f in fields:
        if w.quiet:
            pass
        elif f.type_meta and holder is not None:
            names.append("TypeMeta")
        elif holder is not None:
            embedding(holder, f, names)
        names.append(f.name)
        holder = f.target
    return DecodeError(f"json: cannot unmarshal {value} into Go struct field {struct_name}.{'.'.join(names)} of type {go_type}")


cdef bint embedding(TypeDesc holder, Field f, list names) except -1:
    """Whether ``f`` is a field of ``holder``; appends the embedded structs on the way to it to ``names``."""
    cdef Field one
    if f.owner is holder:
        return True
    for one in holder._fields:
        if one.name is None and one.target is not None:
            names.append(one.target.kind_name)
            if embedding(one.target, f, names):
                return True
            names.pop()
    return False


cdef str json_kind(object v, bint with_number):
    if v is True or v is False:
        return "bool"
    if isinstance(v, str):
        return "string"
    if isinstance(v, dict):
        return "object"
    if isinstance(v, (list, tuple)):
        return "array"
    if with_number:
        return f"number {v}" if isinstance(v, int) else f"number {v!r}"
    return "number"


cdef object wrong(_Walk w, Path* p, TypeDesc owner, Field f, object v, bint whole):
    # whole: the value is the field itself, not an element of it
    if isinstance(v, float):
        w.inexact = True
    cdef bint number = f.kind in (K_INT32, K_INT64, K_INTSTR, K_DOUBLE) and (f.c_card == C_SINGLE or not whole)
    cdef str go_type = f.go_type() if whole else f.go_element()
    if f.kind == K_INTSTR and (not whole or f.c_card == C_SINGLE):
        go_type = "int32"
    elif f.kind in (K_TIME, K_MICROTIME, K_DURATION) and (not whole or f.c_card == C_SINGLE):
        go_type = "string"
    error = mismatch(w, p, owner, json_kind(v, number), go_type)
    error.value = v
    return error


cdef int note_unknown(_Walk w, Path* p, object key) except -1:
    cdef str path
    if w.quiet or PyList_GET_SIZE(w.unknown) >= 100:
        return 0
    path = strict_path(p, w.keyless)
    text = "unknown field " + go_quote(f"{path}.{key}" if path else key)
    if text not in w.seen:
        w.seen.add(text)
        w.unknown.append(text)
    return 0


cpdef str go_quote(str s):
    """Go's ``strconv.Quote``."""
    cdef Py_ssize_t n
    cdef const char* p = kas_ascii(<PyObject*>s, &n)
    if p != NULL and kas_printable(p, n) == n:
        return f'"{s}"'
    out = ['"']
    for c in s:
        o = ord(c)
        if c == '"' or c == "\\":
            out.append("\\" + c)
        elif 7 <= o <= 13:
            out.append("\\" + "abtnvfr"[o - 7])
        elif o < 0x20 or o == 0x7F:
            out.append(f"\\x{o:02x}")
        elif c.isprintable():
            out.append(c)
        else:
            out.append(f"\\u{o:04x}" if o < 0x10000 else f"\\U{o:08x}")
    out.append('"')
    return "".join(out)


cdef object zero_value(Field f):
    if f.kind == K_STRUCT:
        return zero_struct(f.target)
    if f.kind == K_STRING:
        return ""
    if f.kind == K_BOOL:
        return False
    if f.kind == K_QUANTITY:
        return "0"
    if f.kind == K_DURATION:
        return "0s"
    if f.kind in (K_INT32, K_INT64, K_DOUBLE, K_INTSTR):
        return 0
    return None


cdef dict zero_struct(TypeDesc t):
    cdef Field f
    cdef dict out = {}
    if not t.compiled:
        t._compile()
    for f in t.fill:
        out[f.name] = zero_value(f)
    return out


cdef object decode_element(_Walk w, Field f, TypeDesc owner, object v, Path* p, int depth, bint whole):
    """Decodes one value of the field's element type; None stands for Go's null of kinds that have one."""
    cdef int kind = f.kind
    if v is None:
        return None if whole else zero_value(f)
    if kind == K_STRING:
        if isinstance(v, str):
            return v
    elif kind == K_STRUCT:
        if isinstance(v, dict):
            return decode_struct(w, f.target, <dict>v, p, depth)
    elif kind == K_INT32:
        if isinstance(v, int) and v is not True and v is not False and -2147483648 <= v <= 2147483647:
            return v
    elif kind == K_INT64:
        if isinstance(v, int) and v is not True and v is not False and -9223372036854775808 <= v <= 9223372036854775807:
            return v
    elif kind == K_BOOL:
        if v is True or v is False:
            return v
    elif kind == K_QUANTITY:
        if isinstance(v, (str, int, float)) and v is not True and v is not False:
            if isinstance(v, float):
                w.inexact = True
            return canonical_quantity(v)
        raise DecodeError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    elif kind == K_INTSTR:
        if isinstance(v, str):
            return v
        if isinstance(v, int) and v is not True and v is not False and -2147483648 <= v <= 2147483647:
            return v
    elif kind == K_TIME or kind == K_MICROTIME:
        if isinstance(v, str):
            return canonical_time(v, kind == K_MICROTIME)
    elif kind == K_DURATION:
        if isinstance(v, str):
            return _slow_duration(v)
    elif kind == K_RAW or kind == K_UNKNOWN:
        return v
    elif kind == K_BYTES:
        if isinstance(v, str):
            return canonical_bytes(v)
        if isinstance(v, list):
            return decode_byte_list(w, owner, <list>v, p)
    elif kind == K_DOUBLE:
        if isinstance(v, (int, float)) and v is not True and v is not False:
            x = float(v)
            return int(x) if x.is_integer() and abs(x) < 1e21 else x
    elif kind == K_STRLIST:
        if isinstance(v, list):
            return decode_strings(w, owner, <list>v, p)
    else:
        return decode_schema_union(w, f, v, p, depth)
    raise wrong(w, p, owner, f, v, whole)


cdef object decode_byte_list(_Walk w, TypeDesc owner, list v, Path* p):
    out = bytearray()
    for item in v:
        if item is None:
            item = 0
        if not isinstance(item, int) or item is True or item is False or not 0 <= item <= 255:
            raise mismatch(w, p, owner, json_kind(item, True), "uint8")
        out.append(item)
    return base64.b64encode(bytes(out)).decode()


cdef list decode_strings(_Walk w, TypeDesc owner, list v, Path* p):
    cdef list out = []
    for item in v:
        if item is None:
            item = ""
        elif not isinstance(item, str):
            raise mismatch(w, p, owner, json_kind(item, False), "string")
        out.append(item)
        yield_gil(1)
    return out


cdef object decode_schema_union(_Walk w, Field f, object v, Path* p, int depth):
    # JSONSchemaPropsOr{Array,Bool,StringArray}: their UnmarshalJSON calls the decoder itself, so strict decoding ends here.
    cdef Field schema
    cdef list out
    if not f.target.compiled:
        f.target._compile()
    schema = f.target.pb_by_number[2] if f.kind == K_SCHEMA_BOOL else f.target.pb_by_number[1]
    w.quiet += 1
    try:
        if isinstance(v, dict):
            return decode_struct(w, schema.target, <dict>v, p, depth)
        if f.kind == K_SCHEMA_BOOL:
            if v is True or v is False:
                return v
            raise DecodeError("boolean or JSON schema expected")
        if isinstance(v, list) and v:
            if f.kind == K_SCHEMA_STRINGS:
                return decode_strings(w, schema.target, <list>v, p)
            out = []
            for item in <list>v:
                if item is None:
                    out.append(zero_struct(schema.target))
                elif isinstance(item, dict):
                    out.append(decode_struct(w, schema.target, <dict>item, p, depth))
                else:
                    raise mismatch(w, p, schema.target, json_kind(item, False), _go_name(schema.target.name))
            return out
        return None
    finally:
        w.quiet -= 1


cdef object decode_list(_Walk w, Field f, TypeDesc owner, list v, Path* p, int depth):
    cdef Py_ssize_t i, n = PyList_GET_SIZE(v)
    cdef Path here
    cdef list out = []
    cdef object item
    here.up = p
    here.field = NULL
    here.key = NULL
    if f.kind == K_STRING:
        for i in range(n):
            item = v[i]
            if not isinstance(item, str):
                if item is not None:
                    raise wrong(w, p, owner, f, item, False)
                item = ""
            out.append(item)
            yield_gil(1)
        return out
    for i in range(n):
        here.index = i
        yield_gil(1)
        out.append(decode_element(w, f, owner, v[i], &here, depth + 1, False))
    return out


cdef object decode_map(_Walk w, Field f, TypeDesc owner, dict v, Path* p, int depth):
    cdef Py_ssize_t pos = 0
    cdef PyObject* key
    cdef PyObject* val
    cdef Path here
    cdef dict out = {}
    here.up = p
    here.field = NULL
    here.index = -1
    if f.kind == K_STRING:
        while PyDict_Next(v, &pos, &key, &val):
            if not isinstance(<object>val, str):
                if val != <PyObject*>None:
                    raise wrong(w, p, owner, f, <object>val, False)
                PyDict_SetItem(out, <object>key, "")
            else:
                PyDict_SetItem(out, <object>key, <object>val)
            yield_gil(1)
        return out
    while PyDict_Next(v, &pos, &key, &val):
        here.key = key
        yield_gil(1)
        PyDict_SetItem(out, <object>key, decode_element(w, f, owner, <object>val, &here, depth + 1, False))
    return out


cdef dict decode_struct(_Walk w, TypeDesc t, dict obj, Path* p, int depth):
    cdef Py_ssize_t pos = 0
    cdef PyObject* key
    cdef PyObject* val
    cdef FieldInfo* info
    cdef Field f
    cdef Path here
    cdef dict out = {}
    cdef object v
    cdef int i
    cdef bint seen[MAX_FIELDS]
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    if not t.compiled:
        t._compile()
    memset(seen, 0, t.n_flat * sizeof(bint))
    here.up = p
    here.key = NULL
    here.index = -1
    while PyDict_Next(obj, &pos, &key, &val):
        i = t.find_str(key)
        if i < 0:
            note_unknown(w, p, <object>key)
            continue
        if val == <PyObject*>None:
            continue
        info = t.infos + i
        here.field = info.field
        v = <object>val
        if info.card == C_SINGLE:
            if info.kind == K_STRING:
                if not isinstance(v, str):
                    raise wrong(w, &here, t, <Field>info.field, v, True)
            else:
                v = decode_element(w, <Field>info.field, t, v, &here, depth + 1, True)
                if v is None:
                    continue
            if info.drop_zero and not v:
                continue
        elif info.card == C_LIST:
            if not isinstance(v, list):
                raise wrong(w, &here, t, <Field>info.field, v, True)
            v = decode_list(w, <Field>info.field, t, <list>v, &here, depth)
        else:
            if not isinstance(v, dict):
                raise wrong(w, &here, t, <Field>info.field, v, True)
            v = decode_map(w, <Field>info.field, t, <dict>v, &here, depth)
        seen[i] = True
        PyDict_SetItem(out, <object>info.name, v)
    fill_missing(t, out, seen)
    return out


cdef int fill_missing(TypeDesc t, dict out, bint* seen) except -1:
    """Adds the zero values of fields that Go always writes and that are not in ``seen``."""
    cdef int i
    for i in range(t.n_flat):
        if t.infos[i].fill and not seen[i]:
            PyDict_SetItem(out, <object>t.infos[i].name, zero_value(<Field>t.infos[i].field))
    return 0


def _whole(str text not None):
    """Parses an integer. Python refuses thousands of digits; no field holds so many, and the error quotes them."""
    return int(text) if len(text) <= 40 else _Literal(text)


class _Literal(float):
    """A JSON number that keeps its text."""

    def __new__(cls, text):
        self = float.__new__(cls, text)
        self.text = text
        return self

    def __repr__(self):
        return self.text


def decode(TypeDesc type not None, object obj, bytes raw=None, bint keyless=False):
    """Checks a decoded JSON document against ``type`` and returns ``(typed object, unknown fields)``.

    The result is a new tree, except that raw JSON values are shared. Nulls, and scalars that ``omitempty`` drops, are removed. Fields that
    Go always writes get their zero value (lists, maps and times that would be null stay absent). Scalars are canonical. An empty list or
    map stays, as in Go: validation distinguishes it from an absent one, and encode_json() omits it where ``omitempty`` does. So ``decode(t,
    loads(encode_json(t, x)))`` returns x except for those. Unknown fields are returned as ``unknown field "spec.foo"`` in document order,
    at most 100. Raises DecodeError with the text of Go's json package.

    ``keyless``: unknown fields are named like in Go's FromUnstructured, which omits map keys.

    ``raw``, the text from which ``obj`` was parsed, is read again only where the spelling of a number matters (a quantity written as
    ``1e3``, an error that quotes ``1.0``).
    """
    cdef _Walk w = _Walk()
    w.keyless = keyless
    w.unknown = []
    w.seen = set()
    w.root = type
    type.ready()
    if not isinstance(obj, dict):
        if obj is None:
            return zero_struct(type), w.unknown
        raise mismatch(w, NULL, None, json_kind(obj, False), _go_name(type.name))
    if raw is None:
        return decode_struct(w, type, <dict>obj, NULL, 0), w.unknown
    try:
        out = decode_struct(w, type, <dict>obj, NULL, 0)
    except DecodeError:
        if not w.inexact:
            raise
        out = None
    if w.inexact:
        return decode(type, json.loads(utf8_text(raw), parse_float=_Literal, parse_int=_whole))
    return out, w.unknown


def zero(TypeDesc type not None):
    """The typed form of an empty object: only the fields that Go always writes."""
    return zero_struct(type)


cdef bint has_defaults(TypeDesc t, set busy) except -1:
    """Whether the type or any type below it has a constant default; computed once per type."""
    cdef Field f
    if t.defaults_known:
        return t.defaults_below
    if t in busy:
        return False
    busy.add(t)
    if not t.compiled:
        t._compile()
    found = False
    for f in t.flat:
        if (f.has_default and f.default_rule is None) or (f.kind == K_STRUCT and has_defaults(f.target, busy)):
            found = True
            break
    busy.discard(t)
    if found or not busy:
        t.defaults_known = True
        t.defaults_below = found
    return found


cdef object copy_default(object v):
    if isinstance(v, dict):
        return {k: copy_default(x) for k, x in (<dict>v).items()}
    if isinstance(v, list):
        return [copy_default(x) for x in <list>v]
    return v


cdef int constant_defaults(TypeDesc t, dict obj, int depth) except -1:
    cdef Field f
    cdef object v
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    if t.defaulted is None:
        if not t.compiled:
            t._compile()
        t.defaulted = [
            f for f in t.flat
            if (f.has_default and f.default_rule is None) or (f.kind == K_STRUCT and has_defaults(f.target, set()))
        ]
    for f in t.defaulted:
        v = obj.get(f.name)
        if is_unset(f, v):
            v = default_of(f)
            if v is not None:
                obj[f.name] = v
        if v is not None and f.kind == K_STRUCT:
            defaults_of_value(f, v, depth)
    return 0


cdef inline bint is_unset(Field f, object v) except -1:
    """Whether a value makes way for the field's constant default; False if it has none. A pointer keeps an explicit zero; a plain scalar
    cannot distinguish zero from unset.
    """
    if not f.has_default or f.default_rule is not None:
        return False
    return v is None or (not f.ptr and f.c_card == C_SINGLE and f.kind <= K_DOUBLE and not v)


cdef object default_of(Field f):
    """A copy of the field's constant default; None for a zero in a plain field, which equals an absent value with omitempty."""
    v = copy_default(f.default)
    return v if f.ptr or v or not f.omitempty else None


cdef int defaults_of_value(Field f, object v, int depth) except -1:
    """Applies the constant defaults to the structs in a field's value."""
    if f.c_card == C_SINGLE:
        if isinstance(v, dict):
            constant_defaults(f.target, <dict>v, depth + 1)
    elif f.c_card == C_LIST:
        for item in <list>v:
            if isinstance(item, dict):
                constant_defaults(f.target, <dict>item, depth + 1)
    else:
        for item in (<dict>v).values():
            if isinstance(item, dict):
                constant_defaults(f.target, <dict>item, depth + 1)
    return 0


def apply_constant_defaults(TypeDesc type not None, dict obj not None):
    """Applies the tables' constant defaults in place, at every level that is present. Fields with a default rule are left alone.

    For a type made from a schema, it removes nulls that the schema does not allow and then applies the schema's defaults.
    """
    if type.custom:
        drop_nulls(type, obj)
        return apply_schema_defaults(type, obj)
    if has_defaults(type, set()):
        constant_defaults(type, obj, 0)

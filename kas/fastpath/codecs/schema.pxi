# Types made from structural schemas at run time, and the walks over their objects: pruning, nulls, defaults.
#
# An object of such a type is the decoded JSON itself, even if it is invalid: values of other types are found by validation, not by
# decoding. So the walks are lenient, work in place, and follow the object, not the type. The object is untrusted; recursion is bounded by
# MAX_DEPTH. Upstream: apiextensions-apiserver pkg/apiserver/schema/{pruning,defaulting}.

cdef dict SCHEMA_KINDS = {"string": K_STRING, "integer": K_INT64, "number": K_DOUBLE, "boolean": K_BOOL}
cdef dict SCHEMA_SCALARS = {"string": "string", "integer": "int64", "number": "double", "boolean": "bool"}
cdef frozenset META_KEYS = frozenset(("apiVersion", "kind", "metadata"))


def schema_type(str name not None, dict schema not None):
    """The TypeDesc of objects of a structural schema: a resource, whose schema need not mention apiVersion, kind and metadata.

    It shares nothing with other types and nothing else references it, so it is freed with its last reference. ``schema`` is kept and must
    not change. Raises RecursionError for a schema that is nested too deeply. Types of inner objects are filled on first use: most objects
    use a small part of their schema.
    """
    cdef TypeDesc t = custom_type(name, True)
    schema_fill(t, schema, defaults_in(schema))
    return t


cdef list NO_DEFAULTS = []  # shared by the many types without defaults; never modified


def lazy_schema_type(str name not None, load not None):
    """Like ``schema_type``, for the schema that ``load()`` returns when the type's fields are first used; its exceptions propagate then.

    Most definitions of a server are never used: until then a type costs some hundred bytes.
    """
    cdef TypeDesc t = custom_type(name, True)
    t.load = load
    return t


cdef TypeDesc custom_type(str name, bint embedded):
    cdef TypeDesc t = TypeDesc.__new__(TypeDesc)
    t.name = name
    t.custom = True
    t.kind = K_STRUCT
    t.revision_at = -1
    t.derived = {}
    t.embedded = embedded
    t.has_type_meta = embedded
    return t


cdef int load_schema(TypeDesc t) except -1:
    cdef dict schema
    cdef set defaults
    with _compile_lock:
        if t.load is not None:
            if isinstance(t.load, tuple):
                schema, defaults = t.load
            else:
                schema = t.load()
                defaults = defaults_in(schema)
            schema_fill(t, schema, defaults)
            t.load = None
    return 0


cdef inline int filled(TypeDesc t) except -1:
    return load_schema(t) if t.load is not None else 0


cdef set defaults_in(dict schema):
    """The identities of the schemas that have defaults below them. Raises RecursionError for one that is nested too deeply."""
    cdef set out = set()
    find_defaults(schema, out, 0)
    return out


cdef int find_defaults(dict schema, set out, int depth) except -1:
    cdef int found = 0
    if depth > MAX_DEPTH:
        raise RecursionError("schema nested too deeply")
    for inner in (schema.get("properties") or {}).values():
        if find_defaults(inner, out, depth + 1) or inner.get("default") is not None:
            found = 1
    for name in ("additionalProperties", "items"):
        inner = schema.get(name)
        if isinstance(inner, dict) and (find_defaults(inner, out, depth + 1) or inner.get("default") is not None):
            found = 1
    if found:
        out.add(id(schema))
    return found


cdef TypeDesc schema_struct(str name, dict schema, bint embedded, set defaults):
    cdef TypeDesc t = custom_type(name, embedded)
    say_of_others(t, schema)
    t._schema = schema
    t.load = (schema, defaults)
    return t


cdef int say_of_others(TypeDesc t, dict schema) except -1:
    extra = schema.get("additionalProperties")
    t.preserve = schema.get("x-kubernetes-preserve-unknown-fields") is True
    t.allows_additional = extra is not None and extra is not False
    return 0


cdef int schema_fill(TypeDesc t, dict schema, set defaults) except -1:
    cdef dict by_name = {}
    cdef Field f
    cdef list defaulted = []
    say_of_others(t, schema)
    required = frozenset(schema.get("required") or ())
    for key, inner in (schema.get("properties") or {}).items():
        f = schema_field(key, inner, f"{t.name}.{key}", defaults)
        f.required = key in required
        by_name[key] = f
        if f.has_default:
            defaulted.append(f)
        if f.has_default or f.defaults_below:
            t.defaults_below = True
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        t._additional = schema_field(None, extra, f"{t.name}.*", defaults)
        if t._additional.has_default or t._additional.defaults_below:
            t.defaults_below = True
    t._by_name = by_name
    t._fields = t.flat = tuple(by_name.values())
    t._schema = schema
    t.defaulted = defaulted or NO_DEFAULTS
    return 0


cdef Field schema_field(str key, dict schema, str name, set defaults):
    """The Field that describes the values of a schema. Upstream's walks follow the value, not the type: a list is walked by ``items`` and
    an object by its properties, whatever ``type`` says. So the parts of the schema for other types are in ``alternative``.
    """
    cdef Field f, other
    cdef str kind = schema.get("type") or ""
    cdef bint of_objects = bool(schema.get("properties") or schema.get("additionalProperties"))
    cdef bint of_lists = isinstance(schema.get("items"), dict)
    if schema.get("x-kubernetes-int-or-string"):
        kind = "intOrString"
    elif not kind:  # with preserved unknown fields, a schema may have no type
        kind = "object" if of_objects else "array" if of_lists else ""
    f = shaped_field(key, schema, kind, name, defaults)
    if of_lists and kind != "array":
        f.alternative = shaped_field(key, schema, "array", name, defaults)
    if of_objects and kind != "object":
        other = shaped_field(key, schema, "object", name, defaults)
        other.alternative, f.alternative = f.alternative, other
    return f


cdef Field shaped_field(str key, dict schema, str kind, str name, set defaults):
    """Like ``schema_field``, for the values of one type."""
    cdef Field f = Field.__new__(Field)
    f.name = f.pb_name = key
    f.schema = schema
    f.pb = -1
    f.card, f.c_card = "single", C_SINGLE
    f.list_map_keys = f.gates = f.rules = ()
    f.ptr = f.omitempty = True
    f.format = schema.get("format")
    f.default = schema.get("default")
    f.has_default = f.default is not None
    f.enum = schema.get("enum")
    f.accepts_null = schema.get("nullable") is True
    f.preserve = schema.get("x-kubernetes-preserve-unknown-fields") is True
    f.list_type = schema.get("x-kubernetes-list-type")
    f.map_type = schema.get("x-kubernetes-map-type")
    f.list_map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    f.defaults_below = id(schema) in defaults
    if kind == "intOrString":
        f.type, f.kind = "intOrString", K_INTSTR
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict) and not schema.get("properties") \
            and not schema.get("x-kubernetes-embedded-resource"):
        f.card, f.c_card = "map", C_MAP
        schema_element(f, schema["additionalProperties"], name + ".*", defaults)
    elif kind == "object":
        f.type, f.kind = "message", K_STRUCT
        f.target = schema_struct(name, schema, schema.get("x-kubernetes-embedded-resource") is True, defaults)
        f.ref = name
    elif kind == "array":
        f.card, f.c_card = "list", C_LIST
        items = schema.get("items")
        schema_element(f, items if isinstance(items, dict) else {}, name + "[]", defaults)
    elif kind in SCHEMA_KINDS:
        f.type, f.kind = SCHEMA_SCALARS[kind], SCHEMA_KINDS[kind]
    else:
        f.type, f.kind = "any", K_RAW
    return f


cdef int schema_element(Field f, dict schema, str name, set defaults) except -1:
    """Sets the element of a list or map. ``type`` and ``message`` are the element's, as in the tables, unless it is a list or map itself.
    """
    f.element = schema_field(None, schema, name, defaults)
    f.type, f.kind = (f.element.type, f.element.kind) if f.element.c_card == C_SINGLE else (f.element.card, K_RAW)
    f.target = f.element.target if f.element.c_card == C_SINGLE else None
    f.ref = f.element.ref
    return 0


cdef inline bint is_object(Field f) noexcept:
    return f.c_card == C_SINGLE and f.target is not None


cdef Field schema_of(Field f, object v):
    """The Field that describes a value at the position of ``f``."""
    if isinstance(v, dict):
        while f.alternative is not None and f.c_card != C_MAP and not is_object(f):
            f = f.alternative
    elif isinstance(v, list):
        while f.alternative is not None and f.c_card != C_LIST:
            f = f.alternative
    return f


cdef Field schema_below(Field f, TypeDesc t, object key):
    """The Field that describes the value at a key, or None. ``f`` or ``t`` describes the object; if both are None, nothing does."""
    if t is None and f is not None:
        if f.c_card == C_MAP:
            return f.element
        t = f.target if is_object(f) else None
    if t is None:
        return None
    filled(t)
    found = t._by_name.get(key)
    return t._additional if found is None else <Field>found


cdef class _Pruner:
    cdef list unknown

    cdef int drop(self, dict x, list keys, Path* p) except -1:
        for key in keys:
            del x[key]
            path = strict_path(p)
            self.unknown.append(f"{path}.{key}" if path else key)
        return 0

    # ``keep``: unknown fields of this object are preserved, but not those further below.
    cdef int struct(self, TypeDesc t, dict x, Path* p, int depth, bint keep) except -1:
        cdef Py_ssize_t pos = 0
        cdef PyObject* key
        cdef PyObject* val
        cdef PyObject* found
        cdef Path here
        cdef list extra = None
        here.up, here.field, here.index = p, NULL, -1
        filled(t)
        while PyDict_Next(x, &pos, &key, &val):
            if t.embedded and <object>key in META_KEYS:
                continue
            found = PyDict_GetItem(t._by_name, <object>key)
            here.key = key
            if found != NULL:
                self.value(<Field>found, <object>val, &here, depth, False)
            elif t.allows_additional:
                self.value(t._additional, <object>val, &here, depth, False)
            elif not keep:
                if extra is None:
                    extra = []
                extra.append(<object>key)
        if extra is not None:
            self.drop(x, extra, p)
        return 0

    cdef int value(self, Field f, object v, Path* p, int depth, bint keep) except -1:
        cdef Py_ssize_t i, pos = 0
        cdef PyObject* key
        cdef PyObject* val
        cdef Path here
        if depth > MAX_DEPTH:
            raise DecodeError("exceeded max depth")
        here.up, here.field, here.key, here.index = p, NULL, NULL, -1
        if f is not None:
            keep = keep or f.preserve
            if f.alternative is not None:
                f = schema_of(f, v)
        if isinstance(v, dict):
            if f is not None and is_object(f):
                return self.struct(f.target, <dict>v, p, depth + 1, keep)
            if f is not None and f.c_card == C_MAP:
                while PyDict_Next(<dict>v, &pos, &key, &val):
                    here.key = key
                    self.value(f.element, <object>val, &here, depth + 1, False)
            elif not keep:
                self.drop(<dict>v, list(v), p)
        elif isinstance(v, list):
            if keep and (f is None or f.c_card != C_LIST):
                return 0
            for i in range(PyList_GET_SIZE(v)):
                here.index = i  # a list's preserve setting applies to its items
                self.value(f.element if f is not None and f.c_card == C_LIST else None, (<list>v)[i], &here, depth + 1, keep)
        return 0


def prune(TypeDesc type not None, dict obj not None):
    """Removes, in place, the fields that the type does not know; returns their paths ("spec.l[0].x"), sorted.

    Metadata of the object and of objects embedded in it are left alone.
    """
    cdef _Pruner pruner = _Pruner()
    pruner.unknown = []
    type.ready()
    pruner.struct(type, obj, NULL, 0, type.preserve)
    pruner.unknown.sort()
    return pruner.unknown


def prune_value(Field f not None, object value):
    """Like ``prune``, for one value that ``f`` describes."""
    cdef _Pruner pruner = _Pruner()
    pruner.unknown = []
    pruner.value(f, value, NULL, 0, False)
    pruner.unknown.sort()
    return pruner.unknown


cdef int nulls(Field f, TypeDesc t, object v, int depth) except -1:
    cdef Py_ssize_t i, pos = 0
    cdef PyObject* key
    cdef PyObject* val
    cdef Field below
    cdef list gone = None
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    if f is not None and f.alternative is not None:
        f = schema_of(f, v)
    if isinstance(v, dict):
        while PyDict_Next(<dict>v, &pos, &key, &val):
            below = schema_below(f, t, <object>key)
            if val == <PyObject*>None:
                if below is not None and not below.accepts_null and not below.has_default:
                    if gone is None:
                        gone = []
                    gone.append(<object>key)
            elif below is not None:
                nulls(below, None, <object>val, depth + 1)
        if gone is not None:
            for name in gone:
                del v[name]
    elif isinstance(v, list) and f is not None and f.c_card == C_LIST:
        for i in range(PyList_GET_SIZE(v)):
            nulls(f.element, None, (<list>v)[i], depth + 1)
    return 0


def drop_nulls(TypeDesc type not None, dict obj not None):
    """Removes, in place, nulls where the type does not allow null and has no default."""
    type.ready()
    nulls(None, type, obj, 0)


cdef int schema_defaults(Field f, TypeDesc t, object v, int depth) except -1:
    cdef Py_ssize_t i, pos = 0
    cdef PyObject* key
    cdef PyObject* val
    cdef Field below
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    if t is None:
        if not f.defaults_below:
            return 0
        if f.alternative is not None:
            f = schema_of(f, v)
    if isinstance(v, dict):
        if t is None and is_object(f):
            t = f.target
        if t is not None:
            filled(t)
            for below in t.defaulted:
                val = PyDict_GetItem(<dict>v, below.name)
                if val == NULL or (val == <PyObject*>None and not below.accepts_null):
                    (<dict>v)[below.name] = copy_default(below.default)
        while PyDict_Next(<dict>v, &pos, &key, &val):
            below = schema_below(f, t, <object>key)
            if below is not None:
                if val == <PyObject*>None and below.has_default and not below.accepts_null:  # values of additional properties
                    (<dict>v)[<object>key] = inner = copy_default(below.default)
                    schema_defaults(below, None, inner, depth + 1)
                else:
                    schema_defaults(below, None, <object>val, depth + 1)
    elif isinstance(v, list) and f is not None and f.c_card == C_LIST:
        for i in range(PyList_GET_SIZE(v)):
            if (<list>v)[i] is None and f.element.has_default and not f.element.accepts_null:
                (<list>v)[i] = copy_default(f.element.default)
            schema_defaults(f.element, None, (<list>v)[i], depth + 1)
    return 0


def apply_schema_defaults(TypeDesc type not None, dict obj not None):
    """Fills in, in place, the defaults of absent values, and of nulls where null is not allowed, at every level that is present; in list
    items and map values, only those of nulls.
    """
    type.ready()
    if type.defaults_below:
        schema_defaults(None, type, obj, 0)

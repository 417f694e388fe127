# Validating an object against its schema, with upstream's messages (``typed/validate.go``).

def validate(Node n, object value, bint allow_duplicates=False):
    """Return the reasons why the value does not fit its type: a list of (path text, message), empty if it fits."""
    cdef list errors = []
    _validate(n, value, None, allow_duplicates, errors)
    if errors:  # they contain no paths: walk again to find these
        errors = []
        _validate(n, value, "", allow_duplicates, errors)
    return errors


cdef inline str path_below(str path, object name):
    """Return the path of a member; None if paths are not recorded."""
    return None if path is None else path + "." + <str>name


cdef inline str item_path(str path, str element):
    return None if path is None else path + element_text(element)


cdef inline str index_path(str path, Py_ssize_t i):
    return None if path is None else f"{path}[{i}]"


def _go_v(v, top=True):
    """Format a decoded JSON value as fmt's %v."""
    if v is None:
        return "<nil>"
    if v is True or v is False:
        return "true" if v else "false"
    if isinstance(v, dict):
        return "map[" + " ".join(k + ":" + _go_v(v[k]) for k in sorted(v)) + "]"
    if isinstance(v, list):
        return "[" + " ".join(_go_v(x) for x in v) + "]"
    if isinstance(v, float):
        return _go_float(v)
    return str(v)


def _go_source(v):
    """Format a decoded JSON value as fmt's %#v."""
    if v is None:
        return "interface {}(nil)"
    if isinstance(v, dict):
        return "map[string]interface {}{" + ", ".join(_go_quote(k) + ":" + _go_source(v[k]) for k in sorted(v)) + "}"
    if isinstance(v, list):
        return "[]interface {}{" + ", ".join(_go_source(x) for x in v) + "}"
    return _go_quote(v) if isinstance(v, str) else _go_v(v)


# strconv.Quote and %v of a number, installed by the layer above, which has them for its own errors.
cdef object _go_quote = repr
cdef object _go_float = repr


def install_texts(quote, number):
    """Set the functions that quote strings and format non-integer numbers in messages."""
    global _go_quote, _go_float
    _go_quote, _go_float = quote, number


def _go_type(v):
    if v is None:
        return "<nil>"
    if isinstance(v, bool):
        return "bool"
    if isinstance(v, str):
        return "string"
    if isinstance(v, int):
        return "int64"
    if isinstance(v, float):
        return "float64"
    if isinstance(v, list):
        return "[]interface {}"
    return "map[string]interface {}" if isinstance(v, dict) else v.go_type  # values that JSON does not have name their type themselves


cdef int _validate(Node n, object v, str path, bint duplicates, list errors) except -1:
    cdef Form as_form = form(n, v)
    cdef Field f
    cdef Py_ssize_t i
    cdef set seen
    if as_form == MAP:
        if PyDict_CheckExact(v):
            for name, value in (<dict>v).items():
                yield_gil(1)
                f = field_of(n, name)
                if f is not None:
                    _validate(node_of(f), value, path_below(path, name), duplicates, errors)
                elif n.elem is not None:
                    _validate(n.elem, value, path_below(path, name), duplicates, errors)
                else:
                    errors.append((path_below(path, name), "field not declared in schema"))
                    break
        elif v is not None:
            errors.append((path, f"expected map, got &{{{_go_v(v)}}}"))
    elif as_form == SCALAR:
        if v is None:
            pass
        elif n.scalar == NUMERIC:
            if PyBool_Check(v) or not (PyLong_CheckExact(v) or PyFloat_CheckExact(v)):
                errors.append((path, f"expected numeric (int or float), got {_go_type(v)}"))
        elif n.scalar == STRING:
            if not PyUnicode_CheckExact(v):
                errors.append((path, f"expected string, got &value.valueUnstructured{{Value:{_go_source(v)}}}"))
        elif n.scalar == BOOLEAN:
            if not PyBool_Check(v):
                errors.append((path, f"expected boolean, got &{{{_go_v(v)}}}"))
        elif not is_scalar(v):
            errors.append((path, f"expected any scalar, got &{{{_go_v(v)}}}"))
    elif as_form == LIST:
        if PyList_CheckExact(v):
            seen = set()
            for i in range(len(<list>v)):
                item = <object>PyList_GET_ITEM(v, i)
                yield_gil(1)
                if n.list_atomic:
                    if not is_scalar(item) or not n.item.scalar:
                        _validate(n.item, item, index_path(path, i), duplicates, errors)
                    elif n.item.scalar != UNTYPED:
                        _validate(n.item, item, index_path(path, i), duplicates, errors)
                    continue
                try:
                    key = item_key(n, item)
                except ValueError as e:
                    errors.append((path, f"element {i}: {e}"))
                    break
                if key in seen and not duplicates:
                    errors.append((path, f"duplicate entries for key {element_text(key)}"))
                seen.add(key)
                if PyDict_CheckExact(item) or not is_scalar(item):
                    _validate(n.item, item, item_path(path, key), duplicates, errors)
                elif n.item.scalar != STRING or not PyUnicode_CheckExact(item):
                    _validate(n.item, item, item_path(path, key), duplicates, errors)
        elif v is not None:
            errors.append((path, f"expected list, got &{{{_go_v(v)}}}"))
    else:
        errors.append((path, "schema error: invalid atom"))
    return 0


def element_text(str key, bint decoded=False):
    """Format a path element for messages, as PathElement.String: ``.name``, ``[name="x"]``, ``[="x"]``, ``[0]``.

    ``decoded``: it comes from stored managedFields, whose numbers are all float64.
    """
    cdef Py_UCS4 c = key[0]
    if c == u"f":
        return "." + key[2:]
    if c == u"k":
        got = orjson.loads(key[2:])
        return "[" + ",".join([f"{k}={_value_text(got[k], decoded)}" for k in sorted(got)]) + "]"
    if c == u"v":
        return f"[={_value_text(orjson.loads(key[2:]), decoded)}]"
    return f"[{key[2:]}]"


def _value_text(v, bint decoded):
    # value.ToString
    if v is None:
        return "null"
    if isinstance(v, str):
        return _go_quote(v)
    if isinstance(v, list):
        return "[" + ",".join([_value_text(x, decoded) for x in v]) + "]"
    if isinstance(v, dict):
        return "".join([f"{k}={_value_text(v[k], decoded)}" for k in sorted(v)])
    return _go_float(float(v)) if decoded and PyLong_CheckExact(v) else _go_v(v)

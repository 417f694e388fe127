"""ConfigMaps (upstream ``pkg/registry/core/configmap``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.checktables import ANY, TOP, Checked, Message, each

MAX_SIZE = 1024 * 1024
_DATA = each(checks.text(), key=checks.data_key(), total=MAX_SIZE // 2)


def _disjoint(obj: Obj) -> bool:
    return obj["data"].keys().isdisjoint(obj["binaryData"])


CHECK = Checked(
    "core.v1.ConfigMap",
    Message({**TOP, "immutable": ANY, "data": _DATA, "binaryData": _DATA}, rules=[(("data", "binaryData"), _disjoint)]),
)
FROZEN = "field is immutable when `immutable` is set"


def decoded_length(text: str | None) -> int:
    """Return the number of bytes in canonical base64; 0 for null."""
    return len(text) * 3 // 4 - text[-2:].count("=") if text else 0


def frozen_fields(obj: Obj, old: Obj, *keys: str) -> list[FieldError]:
    """Check that an object marked immutable keeps the mark and its contents.

    Upstream compares with reflect.DeepEqual, for which an empty map in the request differs from an absent stored one.
    """
    if not old.get("immutable"):
        return []
    errs = []
    if not obj.get("immutable"):
        errs.append(field.forbidden("immutable", FROZEN))
    errs += [field.forbidden(key, FROZEN) for key in keys if obj.get(key) != old.get(key)]
    return errs


def _validate(obj: Obj) -> list[FieldError]:
    errs = object_meta(obj["metadata"], True, names.dns_subdomain)
    if CHECK.passes(obj):
        return errs
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    total = 0
    for key in sorted(data) if binary or len(data) > 1 else data:
        messages = names.is_config_map_key(key)
        if messages:
            errs += [field.invalid(f"data[{key}]", key, m) for m in messages]
        if key in binary:
            errs.append(field.invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        total += len(data[key].encode())
    for key in sorted(binary):
        errs += [field.invalid(f"binaryData[{key}]", key, m) for m in names.is_config_map_key(key)]
        total += decoded_length(binary[key])
    if total > MAX_SIZE:
        errs.append(field.too_long(field.ROOT, MAX_SIZE))
    return errs


@strategy_for("", "configmaps")
class ConfigMapStrategy(Strategy):
    """ConfigMaps; keys and size are bounded, and an immutable one cannot become mutable."""

    validates_metadata = True

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateConfigMap``."""
        return _validate(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateConfigMapUpdate``: an immutable one stays so, and keeps its data."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if old.get("immutable"):
            errs += frozen_fields(obj, old, "data", "binaryData")
        return errs + _validate(obj)


@printer("", "ConfigMap")
def config_map_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, number of keys, binary ones included, age."""
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [obj["metadata"].get("name", ""), count, age(obj, now)]

"""Compiled checks, which tell whether a document is certainly valid, so that the validation rules need not run.

A check is a tree built once, from a table and a descriptor (``kas.types.checktables``), from a schema (``kas.apiextensions.schemachecks``)
or by hand, out of the functions here. Checks word no errors: a document that does not pass, valid or not, is left to the rules.
``_engine.pxd`` has the design.
"""

from kas.checks._engine import (
    Check,
    Scope,
    alike,
    all_of,
    amount,
    any_of,
    any_there,
    anything,
    ascii,
    boolean,
    by_kind,
    data_key,
    dns1035_label,
    dns_label,
    dns_subdomain,
    floating,
    generated,
    group_version,
    integer,
    ipv4,
    label_value,
    lazily,
    listing,
    mapping,
    matching,
    member,
    multiple,
    none_of,
    one_of,
    option,
    path,
    path_segment,
    port_name,
    printable,
    qualified_name,
    record,
    same,
    text,
    unknown,
    unpadded,
)  # fmt: skip

__all__ = [
    "Check", "Scope", "alike", "all_of", "amount", "any_of", "any_there", "anything", "ascii", "boolean", "by_kind", "data_key",
    "dns1035_label", "dns_label", "dns_subdomain", "floating", "generated", "group_version", "integer", "ipv4", "label_value", "lazily",
    "listing", "mapping", "matching", "member", "multiple", "none_of", "one_of", "option", "path", "path_segment", "port_name",
    "printable", "qualified_name", "record", "same", "text", "unknown", "unpadded",
]  # fmt: skip

"""Validators of names, keys, values and options."""

from kas.endpoints import optionsvalidation as options
from kas.meta import ipchecks, names
from kas.meta.labelselectors import label_selector
from kas.meta.objectmeta import validate_object_meta

TEXT = {
    "cIdentifier": names.is_c_identifier,
    "configMapKey": names.is_config_map_key,
    "dns1035Label": names.is_dns1035_label,
    "dns1123Label": names.is_dns1123_label,
    "dns1123Subdomain": names.is_dns1123_subdomain,
    "dns1123SubdomainWithUnderscore": names.is_dns1123_subdomain_with_underscore,
    "generateNameIsDNS1035Label": lambda t: names.dns1035_label(t, True),
    "generateNameIsDNSLabel": lambda t: names.dns_label(t, True),
    "generateNameIsDNSSubdomain": lambda t: names.dns_subdomain(t, True),
    "httpHeaderName": names.is_http_header_name,
    "labelValue": names.is_label_value,
    "nameIsDNSSubdomain": lambda t: names.dns_subdomain(t, False),
    "pathSegmentName": names.is_path_segment_name,
    "pathSegmentPrefix": names.is_path_segment_prefix,
    "percent": names.is_percent,
    "portName": names.is_port_name,
    "qualifiedName": names.is_qualified_name,
    "relaxedEnvVarName": names.is_relaxed_env_var_name,
    "wildcardDNS1123Subdomain": names.is_wildcard_dns1123_subdomain,
}
FIELDS = {
    "cidr": ipchecks.validate_cidr,
    "cidrLegacy": lambda p, t: ipchecks.validate_legacy_cidr(p, t, strict=False),
    "domainPrefixedPath": names.domain_prefixed_path,
    "fullyQualifiedDomainName": names.fully_qualified_domain_name,
    "fullyQualifiedName": names.fully_qualified_name,
    "interfaceAddress": ipchecks.validate_interface_address,
    "ip": ipchecks.validate_ip,
    "ipLegacy": lambda p, t: ipchecks.validate_legacy_ip(p, t, strict=False),
    "ipLegacyStrict": lambda p, t: ipchecks.validate_legacy_ip(p, t, strict=True),
}
# No field has these rules: names of variables follow the relaxed ones since 1.34, permanently.
NOWHERE = {"envVarName", "domainPrefixedKey"}
RULES = {
    "dnsSubdomain": names.dns_subdomain,
    "dnsLabel": names.dns_label,
    "dns1035Label": names.dns1035_label,
    "pathSegment": names.path_segment,
}
OPTIONS = {
    "createOptions": options.validate_create_options,
    "updateOptions": options.validate_update_options,
    "deleteOptions": options.validate_delete_options,
}


def check(vector, group):
    given, want = vector["in"], vector["out"]
    kind = vector["id"].split("/")[1]
    if kind == "validators":
        for name, complaints in want.items():
            if name in NOWHERE:
                continue
            text = given["text"]
            got = TEXT[name](text) if name in TEXT else [str(e) for e in FIELDS[name]("f", text)]
            assert got == complaints, name
        return
    if kind == "objectMeta":
        errors = validate_object_meta(given["metadata"], given["namespaced"], RULES[given["nameRule"]])
    elif kind == "labelSelector":
        errors = label_selector(given["selector"], "selector")
    else:
        errors = OPTIONS[kind](given["options"])
    assert [{"detail": e.detail, "field": e.field, "message": str(e), "type": e.type} for e in errors] == want["errors"]

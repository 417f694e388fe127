"""Names of signers and of cluster trust bundles (``pkg/apis/core/validation/names.go``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kas.meta import field, names
from kas.meta.field import FieldError
from kas.meta.metachecks import TOTAL_ANNOTATION_SIZE_LIMIT_B

MAX_DOMAIN = 253
MAX_PATH = MAX_DOMAIN + 63 + 1


def signer_name(name: str, path: str) -> list[FieldError]:
    """``<domain of at least two labels>/<dotted path>``."""
    if not name:
        return [field.required(path)]
    parts = name.split("/")
    if len(parts) != 2:
        message = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [field.invalid(path, name, message)]
    domain, rest = parts
    errs: list[FieldError] = []
    if names.byte_length(domain) > MAX_DOMAIN:
        errs.append(field.too_long(path, MAX_DOMAIN))
    labels = domain.split(".")
    for label in labels:
        messages = names.is_dns1123_label(label)
        if messages:
            errs += [field.invalid(path, domain, f"validating label {field.go_quote(label)}: {m}") for m in messages]
            break
    if len(labels) < 2:
        errs.append(field.invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    for label in rest.split("."):
        messages = names.is_dns1123_subdomain(label)
        if messages:
            errs += [field.invalid(path, rest, f"validating label {field.go_quote(label)}: {m}") for m in messages]
            break
    if names.byte_length(name) > MAX_DOMAIN + MAX_PATH + 1:
        errs.append(field.too_long(path, MAX_DOMAIN + MAX_PATH + 1))
    return errs


def user_annotations(items: Mapping[str, str] | None, path: str) -> list[FieldError]:
    """``ValidateUserAnnotations``, from a pod for its signer: each key has a domain, ignoring case; the total size is bounded."""
    items = items or {}
    errs = [err for key in sorted(items) for err in names.domain_prefixed_key(path, key.lower())]
    if sum(names.byte_length(key) + names.byte_length(text) for key, text in items.items()) > TOTAL_ANNOTATION_SIZE_LIMIT_B:
        errs.append(field.too_long(path, TOTAL_ANNOTATION_SIZE_LIMIT_B))
    return errs


def is_kubernetes_signer(name: str) -> bool:
    """``IsKubernetesSignerName``: whether the domain is Kubernetes' own."""
    domain = name.split("/", 1)[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def bundle_name_check(signer: str) -> Callable[[str, bool], list[str]]:
    """``ValidateClusterTrustBundleName``: a bundle's name begins with its signer's, ``:`` in place of ``/``; else it has no colon."""

    def check(name: str, prefix: bool) -> list[str]:
        if not signer:
            if ":" in name:
                return ['ClusterTrustBundle without signer name must not have ":" in its name']
            return names.dns_subdomain(name, prefix)
        required = signer.replace("/", ":") + ":"
        if not name.startswith(required):
            return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {required}"]
        return names.dns_subdomain(name.removeprefix(required), prefix)

    return check


def bundle_name(name: str) -> list[str]:
    """Check a bundle's name without its signer, which is taken from what is before the last colon."""
    return bundle_name_check(name.rpartition(":")[0].replace(":", "/"))(name, False)

"""The attributes of a request, by its method and URL."""

from urllib.parse import unquote, urlsplit

from kas.request.requestinfo import Query, RequestInfoError, parse


def check(vector, group):
    # The recorded answers parsed a whole URL: an authority follows "//". The HTTP server passes a decoded path.
    url = urlsplit(vector["in"]["url"])
    want, error = vector["out"], None
    try:
        info = parse(vector["in"]["method"], unquote(url.path), Query(url.query))
    except RequestInfoError as e:
        info, error = e.info, str(e)
    assert {
        "apiGroup": info.api_group, "apiPrefix": info.api_prefix, "apiVersion": info.api_version, "error": error,
        "fieldSelector": info.field_selector, "isResourceRequest": info.is_resource_request, "labelSelector": info.label_selector,
        "name": info.name, "namespace": info.namespace, "parts": info.parts, "path": info.path, "resource": info.resource,
        "subresource": info.subresource, "verb": info.verb,
    } == want  # fmt: skip

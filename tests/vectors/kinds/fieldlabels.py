"""Field selectors: which labels a resource has."""

from kas.api.fieldlabels import FieldLabelError, convert_field_label
from kas.api.scheme import SCHEME


def check(vector, group):
    given = vector["in"]
    resource = SCHEME.resource(given["group"], given["version"], given["resource"].split("/")[-1])
    for label, want in vector["out"].items():
        try:
            got, value = convert_field_label(resource, label, given["value"])
        except FieldLabelError as e:
            assert {"error": str(e)} == want
            continue
        assert {"label": got, "value": value} == want

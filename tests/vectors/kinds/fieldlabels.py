"""Field selectors: the field labels of each resource."""

from kas.types.fieldlabels import FieldLabelError, convert_field_label
from kas.types.scheme import BUILTIN


def check(vector, group):
    given = vector["in"]
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"].split("/")[-1])
    for label, want in vector["out"].items():
        try:
            got, value = convert_field_label(resource, label, given["value"])
        except FieldLabelError as e:
            assert {"error": str(e)} == want
            continue
        assert {"label": got, "value": value} == want

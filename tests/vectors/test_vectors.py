"""One test per vector; see conftest.py."""


def test_vector(kind, check, vector, group):
    check(vector, group)

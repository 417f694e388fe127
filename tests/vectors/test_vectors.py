"""One test per vector; see conftest.py."""


def test_vector():
    raise NotImplementedError("conftest.py puts the vectors in its place")

"""Validation every kind shares: names, object metadata, request options.

Rules of a single kind stand in its strategy. Nothing here raises for bad input: findings come back as lists.
"""

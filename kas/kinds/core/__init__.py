"""Strategies of the core group."""

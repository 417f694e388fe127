"""Strategies of the autoscaling group."""

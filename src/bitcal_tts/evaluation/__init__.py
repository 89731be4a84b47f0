"""Outcomes to statistics and tables."""

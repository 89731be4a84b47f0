"""Fitting a profile and certifying its thresholds."""

"""One adapter per engine."""

"""Recorded decodes: schema, crash-safe store, recording, replay, sweeps."""

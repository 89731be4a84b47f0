"""The commands of `bitcal`, one file each: `add_options`, `run`, `EXAMPLE`."""

"""Measures the kernels against torch in one run: `python -m kernels.bench --threads 1`."""

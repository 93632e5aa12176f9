"""Attention and row-wise operations in plain C, built by the system's compiler at first use."""

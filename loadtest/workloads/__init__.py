"""One module per workload: what is sent, what is measured, what is reported."""

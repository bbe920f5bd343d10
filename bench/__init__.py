"""Throughput beside the limits of the same machine, in one run."""

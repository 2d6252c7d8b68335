"""Benchmarks of a server: workloads, clients and reports."""

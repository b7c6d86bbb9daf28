"""Measured tables as data: `docs/data` holds them, `docs/results` shows them.

``python -m benchmarks.results add report/x/report.json --name held-out`` files what a benchmark wrote,
``make results`` renders pages and plots from what is filed.
"""

"""What is measured for speed: `make bench`, or `python -m benchmarks SUBJECT …` (docs/benchmarks.md)."""

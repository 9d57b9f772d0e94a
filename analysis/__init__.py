"""From tables to curves and pictures: pandas in, pandas out.

>>> import analysis
>>> trials = analysis.load("trials")  # doctest: +SKIP
"""

from analysis.schema import TableError, load

__all__ = ["TableError", "load"]

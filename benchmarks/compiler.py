"""Subject `compiler`: a program for a target of some thousand conditions, at the sufficient width.

H = 2, L = 3 and k = p = d, residual connections off, a random backbone with full values: N = 36 d.  Each size is
`fut verify` in a process of its own, drawing target and backbone included.
"""

import sys

from benchmarks.figures import Figure
from benchmarks.process import ROOT, run
from benchmarks.terminal import say
from fut.theory import sufficient_width

ABOUT = "`fut verify`: a program solved for at the sufficient width, in float64"
HEADS, LAYERS = 2, 3
DIMS = (4, 28, 111)
MOST_SECONDS, MOST_GB = 60.0, 4.0


def measure() -> list[Figure]:
    """Time and peak memory, by N."""
    figures = []
    for dim in DIMS:
        width = sufficient_width(HEADS, LAYERS, dim, dim)
        say(f"a program at width {width:,}")
        shape = ["--heads", str(HEADS), "--layers", str(LAYERS), "--target-dim", str(dim)]
        ran = run([sys.executable, "-m", "fut.command", "verify", "--backbone", "random", *shape], ROOT)
        row = f"N = {width:,}"
        figures += [
            Figure(row=row, column="time", unit="s", samples=[ran.seconds], better="lower", at_most=MOST_SECONDS),
            Figure(
                row=row,
                column="peak memory",
                unit="GB",
                samples=[ran.peak_bytes / 1e9],
                better="lower",
                at_most=MOST_GB,
            ),
        ]
    return figures

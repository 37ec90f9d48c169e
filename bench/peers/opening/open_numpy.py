"""No loader: a bare `import numpy`, the measure of what a Python process costs anyway."""

import sys

import numpy

print("first", numpy.float32(1), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), None, None)

"""WebDataset: the first sample out of its shuffle buffer."""

import glob
import sys

import webdataset

shards = sorted(glob.glob(sys.argv[1] + "/*.tar"))
stream = webdataset.WebDataset(shards, shardshuffle=100, empty_check=False).shuffle(1000)
print("first", len(next(iter(stream))["bin"]), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), None, None)

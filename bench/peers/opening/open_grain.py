"""Grain: the first sample of the globally shuffled source, then access by number."""

import glob
import sys

import grain

source = grain.sources.ArrayRecordDataSource(sorted(glob.glob(sys.argv[1] + "/*.array_record")))
shuffled = grain.MapDataset.source(source).seed(7).shuffle()
options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
print("first", len(next(iter(shuffled.to_iter_dataset(options)))), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), len(source), lambda index: source[index])

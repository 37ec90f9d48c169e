"""tf.data: the first sample out of its shuffle buffer."""

import glob
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

shards = sorted(glob.glob(sys.argv[1] + "/*.tfrecord"))
stream = tf.data.TFRecordDataset(shards).shuffle(1000)
print("first", len(next(stream.as_numpy_iterator())), flush=True)

from opening import report  # noqa: E402

report(int(sys.argv[2]), None, None)

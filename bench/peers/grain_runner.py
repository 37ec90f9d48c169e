"""Grain on ArrayRecord files. Only opens the small dataset: its decoding is left to the user."""

from __future__ import annotations

from protocol import arguments, make_small, run, small_samples


def small(args) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    def write(count, folder) -> None:
        writer = ArrayRecordWriter(
            str(folder / "shard-00000.array_record"), "group_size:1,uncompressed"
        )
        for sample in small_samples(0, count):
            writer.write(sample)
        writer.close()

    make_small(args, write)


if __name__ == "__main__":
    run(arguments(), {"small": small})

"""The arrays of an npz that is in memory, where they lie."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy

MEMBER_HEADER = struct.Struct("<26xHH")  # of a zip: lengths of the name and of what follows it
LONGEST_HEADER = 4096  # bytes of an npy's header


def npz_array(data: bytes, name: str) -> numpy.ndarray:
    """The array of a member of an npz that is not compressed, without a copy.

    The zip's own checksum is not computed: whoever read the bytes has checked them.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed: expected a member that is stored as it is")
    lengths = MEMBER_HEADER.unpack_from(data, member.header_offset)
    start = member.header_offset + MEMBER_HEADER.size + sum(lengths)
    head = io.BytesIO(data[start : start + LONGEST_HEADER])
    version = numpy.lib.format.read_magic(head)
    read_header = getattr(numpy.lib.format, f"read_array_header_{version[0]}_0")
    shape, fortran, dtype = read_header(head)
    count = int(numpy.prod(shape, dtype=numpy.int64))
    flat = numpy.frombuffer(data, dtype, count, start + head.tell())
    return flat.reshape(shape, order="F" if fortran else "C")

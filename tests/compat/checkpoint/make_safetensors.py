#!/usr/bin/env python3
"""Makes golden safetensors files with the safetensors package, and beside each the list of what that
package finds in it; and checks that it reads ours.safetensors, which a test holds the program's own
writing against.

Run it again with:  python3 make_safetensors.py   (pip install safetensors==0.8.0) Output is the same
each time.
"""

import ctypes
import json
import pathlib

from safetensors import deserialize, serialize
from safetensors._safetensors_rust import TensorSpec

HERE = pathlib.Path(__file__).resolve().parent

# Its names for types, and the bytes of one element.
TYPES = {
    "bool": 1,
    "float4_e2m1fn_x2": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e5m2": 1,
    "float8_e4m3fn": 1,
    "float8_e8m0fnu": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "complex64": 8,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
}


def data_of(name: str, size: int) -> bytes:
    return bytes((len(name) * 31 + i * 7) % 256 for i in range(size))


def file_of(tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None) -> bytes:
    specs, kept = {}, []
    for name, (dtype, shape) in tensors.items():
        size = TYPES[dtype]
        for length in shape:
            size *= length
        buffer = ctypes.create_string_buffer(data_of(name, size), max(size, 1))
        kept.append(buffer)
        specs[name] = TensorSpec(
            dtype=dtype, shape=shape, data_ptr=ctypes.addressof(buffer), data_len=size
        )
    return serialize(specs, metadata)


def found_in(content: bytes) -> list[str]:
    lines = []
    for name, entry in deserialize(content):
        shape = "[" + ", ".join(map(str, entry["shape"])) + "]"
        lines.append(f"{name} {entry['dtype']} {shape} {bytes(entry['data']).hex()}")
    return sorted(lines)


def make(name: str, tensors: dict, metadata: dict[str, str] | None) -> None:
    content = file_of(tensors, metadata)
    path = HERE / f"{name}.safetensors"
    path.write_bytes(content)
    expected = {
        "entries": found_in(content),
        "metadata": sorted(f"{key}={value}" for key, value in (metadata or {}).items()),
    }
    path.with_suffix(".safetensors.json").write_text(json.dumps(expected, indent=1) + "\n")


def main() -> None:
    types = {f"layer.{dtype}": (dtype, [2, 4]) for dtype in TYPES}
    types |= {"scalar": ("bfloat16", []), "nothing": ("int64", [3, 0, 2]), "one": ("uint8", [1])}
    make("types", types, None)
    make("empty", {}, None)
    make("metadata", {"w": ("float32", [2])}, {"format": "pt"})
    names = {
        name: ("uint8", [3])
        for name in ['"quoted"', "back\\slash", "new\nline", "höhe", "😀", "", "n" * 200, "a/b.c@1"]
    }
    make("names", names, {})
    ours = found_in((HERE / "ours.safetensors").read_bytes())
    assert len(ours) == 4, ours
    print("\n".join(ours))


if __name__ == "__main__":
    main()

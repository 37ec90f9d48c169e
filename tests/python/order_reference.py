"""The sample order, written from docs/formats/order.md alone, in plain Python.

Slow and simple on purpose: it builds whole lists where the loader computes single positions, and it
shares no code with it. Tests compare the two.

    python order_reference.py write DIR    writes the golden files (they are frozen: do not rewrite)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WORD = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
DEAL, SHARDS, WINDOW, SUBSTITUTE = 1, 2, 3, 4


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def combine(h: int, w: int) -> int:
    return mix((h + GAMMA + mix((w + 0xD1B54A32D192ED03) & WORD)) & WORD)


def hash_words(*words: int) -> int:
    h = 0
    for w in words:
        h = combine(h, w)
    return h


def draw(key: int, i: int) -> int:
    return mix((key + (i + 1) * GAMMA) & WORD)


def below(x: int, m: int) -> int:
    return (x * m) >> 64


def version_number(version: str) -> int:
    if len(version) == 64 and all(c in "0123456789abcdef" for c in version):
        return int(version[:16], 16)
    data = version.encode()
    h = combine(0, len(data))
    for b in data:
        h = combine(h, b)
    return h


def permutation(m: int, key: int) -> list[int]:
    """P(0), P(1), ... P(m-1)."""
    if m <= 16:
        listed = list(range(m))
        for i in range(m - 1):
            a = m - 1 - i
            b = below(draw(key, i), a + 1)
            listed[a], listed[b] = listed[b], listed[a]
        return listed
    bits = (m - 1).bit_length()
    low_bits = (bits + 1) // 2
    high_bits = bits - low_bits
    rounds = [draw(key, r) for r in range(8)]
    result = []
    for j in range(m):
        x = j
        while True:
            low, high = x % 2**low_bits, x // 2**low_bits
            for r in (0, 2, 4, 6):
                high ^= mix((rounds[r] + low) & WORD) % 2**high_bits
                low ^= mix((rounds[r + 1] + high) & WORD) % 2**low_bits
            x = high * 2**low_bits + low
            if x < m:
                break
        result.append(x)
    return result


def default_lanes(num_shards: int) -> int:
    if num_shards >= 64:
        return 64
    lanes = 1
    while lanes * 2 <= num_shards // 4:
        lanes *= 2
    return lanes


class Order:
    """The order of one dataset version under one seed."""

    def __init__(
        self,
        shard_samples: list[int],
        version: str,
        seed: int,
        *,
        shuffle: bool = True,
        lanes: int = 0,
        window_shards: int = 0,
    ) -> None:
        self.sizes = shard_samples
        self.num_samples = sum(shard_samples)
        self.first = [sum(shard_samples[:s]) for s in range(len(shard_samples))]
        self.version = version_number(version)
        self.seed = seed
        self.shuffle = shuffle
        self.lanes = lanes or default_lanes(len(shard_samples))
        self.window_shards = window_shards or max(2, 64 // self.lanes)
        if not shuffle:
            self.lanes = self.window_shards = 1

    def deal(self) -> list[list[int]]:
        """The shards of each lane, in dealing order."""

        def samples(shards: list[int]) -> int:
            return sum(self.sizes[s] for s in shards)

        dealt: list[list[int]] = [[] for _ in range(self.lanes)]
        counts = [0] * self.lanes
        by_hash = [
            (hash_words(self.version, self.seed, DEAL, s), s) for s in range(len(self.sizes))
        ]
        for _, s in sorted(by_hash):
            lane = counts.index(min(counts))
            dealt[lane].append(s)
            counts[lane] += self.sizes[s]
        return sorted(dealt, key=samples, reverse=True)  # stable, so equals keep their sequence

    def lane_stream(self, epoch: int, lane: int, shards: list[int]) -> list[int]:
        """The sample ids of one lane in one epoch."""
        words = (self.version, self.seed)
        sequence = [
            s for _, s in sorted((hash_words(*words, SHARDS, epoch, lane, s), s) for s in shards)
        ]
        stream: list[int] = []
        for window, begin in enumerate(range(0, len(sequence), self.window_shards)):
            joined: list[int] = []
            for s in sequence[begin : begin + self.window_shards]:
                joined += range(self.first[s], self.first[s] + self.sizes[s])
            key = hash_words(*words, WINDOW, epoch, lane, window)
            stream += [joined[place] for place in permutation(len(joined), key)]
        return stream

    def stream(self, epoch: int) -> list[int]:
        """The sample id at each position of an epoch."""
        if not self.shuffle:
            return list(range(self.num_samples))
        lanes = [self.lane_stream(epoch, k, shards) for k, shards in enumerate(self.deal())]
        result = []
        for index in range(len(lanes[0])):
            result += [lane[index] for lane in lanes if index < len(lane)]
        return result

    def substitute(self, epoch: int, position: int, attempt: int) -> int:
        key = hash_words(self.version, self.seed, SUBSTITUTE, epoch, position, attempt)
        return below(draw(key, 0), self.num_samples)


def global_batches(num_samples: int, batch: int, tail: str) -> list[list[int]]:
    """The unwrapped positions of each global batch."""
    batches = [list(range(b, b + batch)) for b in range(0, num_samples, batch)]
    if num_samples % batch:
        if tail == "drop":
            batches.pop()
        elif tail == "uneven":
            batches[-1] = [p for p in batches[-1] if p < num_samples]
    return batches


def rank_batches(num_samples: int, batch: int, tail: str, world: int, rank: int) -> list[list[int]]:
    """The positions of each batch that a rank delivers; batches without a row are left out."""
    own = [
        [p % num_samples for p in positions if p % world == rank]
        for positions in global_batches(num_samples, batch, tail)
    ]
    return [rows for rows in own if rows]


VERSION = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def golden_cases() -> dict[str, dict]:
    ragged = [below(draw(7, s), 60) for s in range(37)]
    return {
        "one_sample": {"shards": [1]},
        "one_shard": {"shards": [100], "seed": 1},
        "small_windows": {"shards": [3, 5, 0, 2, 4, 1], "lanes": 2, "window_shards": 1, "epoch": 3},
        "default_settings": {"shards": [10] * 70, "seed": 42, "epoch": 1},
        "default_with_few_shards": {"shards": [9] * 21, "seed": 6},
        "ragged": {"shards": ragged, "seed": 5, "lanes": 4, "window_shards": 3, "epoch": 2},
        "empty_lanes": {"shards": [0, 0, 9, 0, 4], "lanes": 5, "seed": 3},
        "other_version": {"shards": [40, 60, 50], "version": "tokens v2 é", "lanes": 2, "seed": 9},
        "large_numbers": {"shards": [30, 30, 30], "seed": WORD, "epoch": WORD, "lanes": 3},
        "natural": {"shards": [4, 0, 3], "shuffle": False, "epoch": 8},
        "feistel_sizes": {"shards": [17, 64, 65, 400], "lanes": 4, "window_shards": 1, "seed": 11},
    }


def golden(case: dict) -> dict:
    case = {
        "version": VERSION,
        "seed": 0,
        "epoch": 0,
        "shuffle": True,
        "lanes": 0,
        "window_shards": 0,
    } | case
    order = Order(
        case["shards"],
        case["version"],
        case["seed"],
        shuffle=case["shuffle"],
        lanes=case["lanes"],
        window_shards=case["window_shards"],
    )
    lanes = order.deal() if order.shuffle else [list(range(len(order.sizes)))]
    n = order.num_samples
    cuts = []
    for batch, world in ((1, 1), (4, 3), (7, 2), (32, 32)):
        for tail in ("drop", "pad", "uneven"):
            if tail == "drop" and n < batch:
                continue
            ranks = [
                rank_batches(n, batch, tail, world, r) for r in sorted({0, world // 2, world - 1})
            ]
            cuts.append(
                {
                    "global_batch": batch,
                    "world_size": world,
                    "tail": tail,
                    "ranks": sorted({0, world // 2, world - 1}),
                    "num_batches": [len(b) for b in ranks],
                    "last_batch_positions": [b[-1] if b else [] for b in ranks],
                }
            )
    return case | {
        "lanes_used": order.lanes,
        "window_shards_used": order.window_shards,
        "lane_shards": lanes,
        "stream": order.stream(case["epoch"]),
        "substitutes": [
            order.substitute(case["epoch"], p, a) for p in (0, 1, n - 1) for a in (0, 1)
        ],
        "cuts": cuts,
    }


def dump(golden_case: dict) -> str:
    """One member a line, so that the files can be read and compared."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in golden_case.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_golden(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in golden_cases().items():
        (folder / f"{name}.json").write_text(dump(golden(case)))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "write":
        sys.exit(__doc__)
    write_golden(Path(sys.argv[2]))

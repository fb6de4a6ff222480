"""Seeded damage to real and made-up traces: each result is a trace or an error that says why.

Run as a script for many: ``nice python tests/trace/fuzz.py 100000``.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
from functools import cache

from trace_tables import SHARED, check, kernel, span, tables

from gpudiag.errors import InputError
from gpudiag.trace.read import read_source
from gpudiag.trace.source import source_of

SMALL_BYTES = 256 << 10
GZIP_BYTES = 16 << 10
SLICE_BYTES = 64 << 10
GZIP = b"\x1f\x8b"
MADE_UP_EVENTS = 60
MAX_SHOWN = 20
# How often the same damaged bytes are also read in small blocks, and must give the same.
RECHECK_EVERY = 5


@cache
def corpus() -> list[bytes]:
    """Return small files whole, slices of larger ones, and one made up."""
    files = [_made_up()]
    if SHARED.is_dir():
        paths = [*SHARED.glob("cases/inputs/C*.json*"), *SHARED.glob("traces/kt-*/*.json*")]
        paths += SHARED.glob("traces/gloo-faults/ddp_normal/ranks/*.json.gz")
        for path in sorted(paths):
            data = path.read_bytes()
            limit = GZIP_BYTES if data.startswith(GZIP) else SMALL_BYTES
            files += [data] if 0 < len(data) <= limit else []
            files += _slices(data) if len(data) > limit else []
    return files


def _made_up() -> bytes:
    events = []
    for i in range(MADE_UP_EVENTS):
        events += [
            span("cpu_op", f'aten::op{i % 7} \\ "q" é', 1000.25 + i, 0.5, args={"External id": i})
        ]
        events += [kernel(f"k{i}", 1001.125 + i, 0.25, **{"Collective name": "allreduce"})]
    return b"".join(
        [
            b'{"schemaVersion": 1, "traceEvents": ',
            json.dumps(events, indent=1).encode(),
            b', "traceName": "[x]"}',
        ]
    )


def _slices(data: bytes) -> list[bytes]:
    text = gzip.decompress(data) if data.startswith(GZIP) else data
    half = SLICE_BYTES // 2
    middle = len(text) // 2
    return [
        text[:SLICE_BYTES],
        text[:half] + text[middle : middle + half],
        text[:half] + text[-half:],
    ]


def damage(data: bytes, rng: random.Random) -> bytes:
    """Return the data cut off, with bytes flipped, with a piece missing, doubled or overwritten."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(out) + 1)
        length = rng.choice((1, 2, 5, 40, 300))
        kind = rng.randrange(6)
        if kind == 0:
            del out[at:]
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del out[at : at + length]
        elif kind == 3:
            out[at:at] = out[max(0, at - length) : at]
        elif kind == 4:
            out[at:at] = rng.choice(
                (b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\0", b"\xff", b"NaN")
            )
        else:
            out[at : at + length] = rng.randbytes(min(length, 8))
        if not out:
            break
    return bytes(out)


def run_one(seed: int) -> str:
    """Damage one file by its seed and read it; return what came of it."""
    rng = random.Random(seed)
    data = damage(rng.choice(corpus()), rng)
    outcome, trace = _read(data, 1 << 20)
    if seed % RECHECK_EVERY == 0:
        again, small = _read(data, rng.choice((64, 512, 4096, 30000)))
        assert outcome == again, (outcome, again)
        if trace is not None:
            assert tables(trace) == tables(small)
            assert trace.quality == small.quality
    return outcome


def _read(data: bytes, block_bytes: int):
    try:
        trace = read_source(source_of(data), block_bytes=block_bytes)
    except InputError:
        return "refused", None
    check(trace)
    return "partial" if trace.partial else "whole", trace


def main(count: int, first: int = 0) -> None:
    """Fuzz ``count`` seeds and print what came of them."""
    outcomes: dict[str, int] = {}
    start = time.monotonic()
    for seed in range(first, first + count):
        try:
            outcome = run_one(seed)
        except Exception as error:  # noqa: BLE001 the point is to find any
            outcome = f"FAILED {type(error).__name__} {str(error)[:40]}"
            if len(outcomes) < MAX_SHOWN:
                print("seed", seed, repr(error)[:300], flush=True)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(count, "seeds from", first, outcomes, f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""Rows of the table: the exact index of items beside faiss's IndexFlatIP (peers/faiss), 100,000 items of 64 floats, top 100.

Both search in turns on one core, by CPU seconds; the targets are shares of what faiss takes for one query. LEAT_FAISS
names a Python with faiss-cpu and numpy (peers/faiss/README.md); without it the row is skipped."""

import json
import os
import subprocess

from harness import ROOT, Broken, Figure, Peer, Skip, median
from rows_torch import ONE_CORE

PEER = os.path.join(ROOT, "bench", "peers", "faiss", "flat.py")
RECALL = 0.999
TARGETS = {"one_us": ("one query", 0.53), "block_us": ("a query of a block of 64", 0.2)}  # of faiss's single query


def faiss_python():
    python = os.environ.get("LEAT_FAISS", os.path.join(ROOT, "build", "bench", "faiss", "bin", "python"))
    try:
        subprocess.run([python, "-c", "import faiss, numpy"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise Skip("no faiss: LEAT_FAISS=its Python (bench/peers/faiss/README.md)") from None
    return python


def row_items(bench):
    python = faiss_python()
    catalogue = bench.made("items", lambda path: bench.run([python, PEER, "make", path]))
    program, top = bench.program("kernels", "bench_items"), bench.path("items-top")
    ours, theirs = bench.repeat(
        lambda: json.loads(bench.run([*ONE_CORE, program, catalogue, top]).output),
        lambda: json.loads(bench.run([*ONE_CORE, python, PEER, "run", catalogue, top]).output))
    recall = min(run["recall"] for run in theirs)
    if recall < RECALL:
        raise Broken(f"recall@100 of faiss's answers is {recall:.5f}, not {RECALL}")
    limit, rank, ranks = (median([run[key] for run in ours]) for key in ("limit_us", "rank_us", "rank_block_us"))
    peers = {key: median([run[key] for run in theirs]) for key in TARGETS}
    return [Figure(f"exact index, 100,000 x 64, top 100: {what}", "us", median([run[key] for run in ours]),
                   share * peers["one_us"], is_upper=True,
                   peers=[Peer(f"faiss {theirs[0]['faiss']} IndexFlatIP", peers[key], "same run")],
                   checked=f"recall@100 of faiss's answers {recall:.5f}",
                   note=f"{ours[0]['variant']}; reading the bytes of a scan once takes {limit:.0f} us; a rank {rank:.0f} us, of a call of 64 {ranks:.0f} us.")
            for key, (what, share) in TARGETS.items()]


ROWS = {"items": ("the exact index of items beside faiss on one core", row_items)}

#!/usr/bin/env python3
"""faiss's exact index (IndexFlatIP), as a peer of learners/items: one thread, the same catalogue, times by CPU seconds.

    flat.py make CATALOGUE [--items N] [--dims D]    writes a planted catalogue: items around centres, norms by Zipf's law
    flat.py run CATALOGUE TOP                        one JSON line: faiss's times, and leat's recall in TOP (bench_items)
"""

import argparse
import json
import statistics
import time

import numpy

QUERIES, BLOCK, K, TURNS, CENTRES = 1024, 64, 100, 21, 200


def make(arguments):
    random = numpy.random.default_rng(7)
    centres = random.standard_normal((CENTRES, arguments.dims))

    def around(count):
        rows = centres[random.integers(CENTRES, size=count)] + random.standard_normal((count, arguments.dims))
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)

    norms = (1.0 + random.permutation(arguments.items)) ** -0.5
    rows = around(arguments.items) * norms[:, None]
    with open(arguments.catalogue, "wb") as file:
        numpy.array([arguments.items, arguments.dims, QUERIES, 0], dtype=numpy.uint32).tofile(file)
        rows.astype(numpy.float32).tofile(file)
        around(QUERIES).astype(numpy.float32).tofile(file)


def seconds(search):
    begin = time.process_time()
    search()
    return time.process_time() - begin


def run(arguments):
    import faiss
    faiss.omp_set_num_threads(1)
    with open(arguments.catalogue, "rb") as file:
        items, dims, queries, _ = numpy.fromfile(file, dtype=numpy.uint32, count=4)
        rows = numpy.fromfile(file, dtype=numpy.float32, count=items * dims).reshape(items, dims)
        asked = numpy.fromfile(file, dtype=numpy.float32, count=queries * dims).reshape(queries, dims)
    index = faiss.IndexFlatIP(int(dims))
    index.add(rows)
    _, best = index.search(asked, K)
    top = numpy.fromfile(arguments.top, dtype=numpy.uint32).reshape(queries, K)
    recall = statistics.fmean(len(set(a.tolist()) & set(b.tolist())) / K for a, b in zip(best, top, strict=True))
    one, block = [], []
    for turn in range(TURNS):
        some = asked[turn * BLOCK % (queries - BLOCK + 1):][:BLOCK]
        one.append(seconds(lambda: [index.search(some[q:q + 1], K) for q in range(BLOCK)]) / BLOCK)
        block.append(seconds(lambda: index.search(some, K)) / BLOCK)
    print(json.dumps({"faiss": faiss.__version__, "one_us": 1e6 * statistics.median(one), "block_us": 1e6 * statistics.median(block),
                      "recall": recall}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("make")
    command.add_argument("catalogue")
    command.add_argument("--items", type=int, default=100_000)
    command.add_argument("--dims", type=int, default=64)
    command.set_defaults(run=make)
    command = commands.add_parser("run")
    command.add_argument("catalogue")
    command.add_argument("top")
    command.set_defaults(run=run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

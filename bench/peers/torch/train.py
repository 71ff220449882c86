#!/usr/bin/env python3
"""One progressive pass of a PyTorch model over gen.py's .npz: predict a batch, then learn from it. README.md says more.

Prints one JSON line: what ran, examples/s by wall and by CPU time (medians over windows, and total), logloss and AUC
of the predictions, and where a step's time goes."""

import argparse
import json
import os
import resource
import statistics
import sys
import time

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read when torch is loaded: huge pages under the tables

import numpy as np  # noqa: E402
import torch  # noqa: E402

import data  # noqa: E402
from models import MODELS  # noqa: E402
from tables import DenseAdagrad, SparseTable, TouchedTable  # noqa: E402

WINDOWS = 20
PHASES = ("gather", "forward", "backward", "update")


class Clock:
    """Seconds of each phase by the host's clock. On a GPU, whose work is only queued by then, each mark waits for it:
    a split is taken apart from the timed run."""

    def __init__(self, device):
        self.device, self.seconds = device, dict.fromkeys(PHASES, 0.0)

    def start(self):
        self.wait()
        self.last = time.perf_counter()

    def mark(self, phase):
        self.wait()
        now = time.perf_counter()
        self.seconds[phase] += now - self.last
        self.last = now

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()


class Step:
    """Predicts a batch into `out`, then learns from it."""

    def __init__(self, options, fields, inputs, rows):
        kind, dim = MODELS[options.model]
        self.device, self.precision = options.device, options.precision
        model = kind(fields, inputs, dim).to(options.device)
        parameters = list(model.parameters())
        first = options.first / options.batch**2
        self.dense = DenseAdagrad(parameters, options.dense_rate, first)
        self.parameters = parameters
        arguments = (rows, model.width, model.is_weighted, options.init, options.rate, first,
                     options.device)
        self.table = (SparseTable(*arguments) if options.rows == "sparse" else
                      TouchedTable(*arguments, options.sum_by))
        self.model = torch.compile(model, dynamic=False) if options.compile else model
        self.clock = None

    def mark(self, phase):
        if self.clock:
            self.clock.mark(phase)

    def __call__(self, ids, dense, labels, out):
        if self.clock:
            self.clock.start()
        rows, source = self.table.gather(ids)
        self.mark("gather")
        with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False):
            logits = self.model(rows, dense)
        logits = logits.float()
        torch.sigmoid(logits.detach(), out=out)
        # the mean over examples, the sum over labels
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels) * labels.shape[1]
        self.mark("forward")
        gradient, *gradients = torch.autograd.grad(loss, [source, *self.parameters])
        self.mark("backward")
        with torch.no_grad():
            self.table.update(ids, gradient)
            self.dense.update(gradients)
        self.mark("update")

    def state(self):
        return self.table.state() + self.dense.state()


class GraphedStep:
    """The whole step, optimizer included, as one CUDA graph over static tensors of one batch."""

    def __init__(self, step, ids, dense, labels):
        self.inputs = [torch.empty_like(t, device="cuda").copy_(t) for t in (ids, dense, labels)]
        self.out = torch.empty_like(self.inputs[2])
        before = [t.clone() for t in step.state()]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # libraries choose algorithms and allocate
                step(*self.inputs, self.out)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step(*self.inputs, self.out)
        for tensor, old in zip(step.state(), before, strict=True):
            tensor.copy_(old)  # nothing of the warm-up is learned

    def __call__(self, ids, dense, labels, out):
        for static, given in zip(self.inputs, (ids, dense, labels), strict=True):
            static.copy_(given, non_blocking=True)
        self.graph.replay()
        out.copy_(self.out)


def examples_of(options):
    """ids, dense, labels where the run reads them, and the number of rows."""
    if options.model == "dlrm-small":
        *tensors, rows = data.synthetic(options.examples or 12 * options.batch)
    else:
        kind = MODELS[options.model][0]
        *tensors, rows = data.load(options.data, options.examples, getattr(kind, "labels", 1),
                                   getattr(kind, "fields", None))
    if options.device == "cuda":
        tensors[0] = tensors[0].int()
        tensors = [t.cuda() if options.feed == "device" else t.pin_memory() for t in tensors]
    return tensors, rows


class Windows:
    """Wall and CPU seconds (user + system, all threads of the process) by window of whole batches."""

    def __init__(self, batches):
        self.every, self.rates, self.wall, self.cpu, self.seen = max(1, batches // WINDOWS), [], 0.0, 0.0, 0

    def start(self):
        self.began, self.cpu_began = time.perf_counter(), time.process_time()

    def stop(self, examples):
        wall, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu_began
        self.rates.append((examples / wall, examples / max(cpu, 1e-9)))
        self.wall, self.cpu, self.seen = self.wall + wall, self.cpu + cpu, self.seen + examples

    def report(self):
        by_wall, by_cpu = (statistics.median(column) for column in zip(*self.rates, strict=True))
        return {"examples_s": round(by_wall), "examples_s_total": round(self.seen / self.wall),
                "examples_cpu_s": round(by_cpu), "examples_cpu_s_total": round(self.seen / self.cpu),
                "windows": len(self.rates)}


def learn(step, eager, tensors, predictions, options):
    """The timed pass. The batch that is left over at the end is not whole: it is predicted and not timed."""
    on_device = options.device == "cuda"
    ids, dense, labels = tensors
    whole = len(ids) // options.batch
    windows = Windows(whole)

    def one(call, at):
        part = slice(at * options.batch, (at + 1) * options.batch)
        given = (ids[part], dense[part], labels[part])
        if on_device and call is eager:
            given = [t.cuda(non_blocking=True) for t in given]
        call(*given, predictions[part])

    for begin in range(0, whole, windows.every):
        end = min(begin + windows.every, whole)
        windows.start()
        for at in range(begin, end):
            one(step, at)
        if on_device:
            torch.cuda.synchronize()
        windows.stop((end - begin) * options.batch)
    if len(ids) % options.batch:
        one(eager, whole)
    return windows


def split(eager, tensors, options, batches=20):
    """Shares of a step's time by phase, of eager steps after the timed run."""
    clock = eager.clock = Clock(options.device)
    ids, dense, labels = tensors
    out = torch.empty(options.batch, labels.shape[1], device=options.device)
    for at in range(min(batches, len(ids) // options.batch)):
        part = slice(at * options.batch, (at + 1) * options.batch)
        eager(*(t[part].to(options.device) for t in (ids, dense, labels)), out)
        if at == 0:
            clock.seconds = dict.fromkeys(PHASES, 0.0)
    whole = sum(clock.seconds.values())
    return {phase: round(seconds / whole, 3) for phase, seconds in clock.seconds.items()}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("data", nargs="?", help="gen.py's .npz; dlrm-small makes its own data")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32",
                        help="bf16: autocast; tables, dense weights and optimizers stay fp32")
    parser.add_argument("--cuda-graphs", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile around the model")
    parser.add_argument("--rows", choices=("sparse", "touched"), help="how rows are updated (tables.py)")
    parser.add_argument("--sum-by", choices=("index_add", "embedding"), default="index_add",
                        help="sums gradients of touched rows")
    parser.add_argument("--feed", choices=("pinned", "device"), default="pinned", help="where a GPU reads batches from")
    parser.add_argument("--examples", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate of embedding rows")
    parser.add_argument("--dense-rate", type=float,
                        help="learning rate of dense layers: 0.05; 0.02 from a batch of 2048 on")
    parser.add_argument("--init", type=float, default=0.01)
    parser.add_argument("--first", type=float, default=0.3, help="AdaGrad's sums begin at FIRST / batch^2")
    parser.add_argument("--predictions", help="file (.npy) for the predictions")
    options = parser.parse_args(arguments)
    if options.dense_rate is None:
        options.dense_rate = 0.05 if options.batch < 2048 else 0.02
    options.rows = options.rows or ("sparse" if options.device == "cpu" else "touched")
    if options.cuda_graphs and (options.device != "cuda" or options.rows != "touched"):
        parser.error("--cuda-graphs needs --device cuda and --rows touched")
    if options.model != "dlrm-small" and not options.data:
        parser.error("which .npz?")
    return options


def run(options, tensors, rows):
    """One pass from new weights: (what the JSON line says, predictions)."""
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high" if options.precision == "tf32" else "highest")
    ids, dense, labels = tensors
    if len(ids) < options.batch:
        sys.exit(f"{len(ids)} examples do not fill a batch of {options.batch}")
    eager = Step(options, ids.shape[1], dense.shape[1], rows)
    predictions = torch.empty(labels.shape, device=options.device)
    step = GraphedStep(eager, *(t[:options.batch] for t in tensors)) if options.cuda_graphs else eager
    windows = learn(step, eager, tensors, predictions, options)
    p, y = predictions.cpu().numpy(), labels.cpu().numpy()
    return {
        "model": options.model, "device": options.device, "threads": options.threads, "batch": options.batch,
        "precision": options.precision, "rows": options.rows, "graphs": options.cuda_graphs,
        "compile": options.compile, "rate": eager.table.rate, "dense_rate": eager.dense.rate, "first": options.first,
        "examples": len(y), **windows.report(), **data.scores(p, y), "split": split(eager, tensors, options),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "torch": torch.__version__}, p


def main():
    options = parse()
    found, predictions = run(options, *examples_of(options))
    print(json.dumps(found))
    if options.predictions:
        np.save(options.predictions, predictions)


if __name__ == "__main__":
    main()

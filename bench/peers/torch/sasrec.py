"""SASRec (Kang and McAuley 2018) in PyTorch, with the loss over all items or over drawn ones, on pairs "user item".

The peer of leat's learner `sasrec`: the same shape, window, batch and rates; of each user the last item is the test's, the
one before it validation's, and each pass learns the window of the others. Windows are padded to the longest of their
batch. Items are ranked among all, without those that the user had. Prints one JSON line."""

import argparse
import gzip
import json
import math
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

RANKED = 512  # users that are ranked at a time


def histories_of(path):
    """Each user's items in order, as numbers from 1."""
    opened = gzip.open if path.endswith(".gz") else open
    users, numbers = {}, {}
    with opened(path, "rt") as file:
        for line in file:
            user, item = line.split()
            users.setdefault(user, []).append(numbers.setdefault(item, len(numbers) + 1))
    return list(users.values()), len(numbers)


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.hidden, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        rows, length, dim = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(rows, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        share = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=share)
        x = x + functional.dropout(mixed.transpose(1, 2).reshape(rows, length, dim), self.dropout, self.training)
        hidden = torch.relu(self.hidden(self.norm_2(x)))
        return x + functional.dropout(self.out(hidden), self.dropout, self.training)


class Sasrec(nn.Module):
    def __init__(self, items, o):
        super().__init__()
        # Drawn items touch few rows: their gradients are sparse, as leat's are.
        self.items = nn.Embedding(items + 1, o.dim, sparse=o.loss == "sampled_softmax")
        self.positions = nn.Embedding(o.window, o.dim)
        self.blocks = nn.ModuleList([Block(o.dim, o.heads, o.dropout) for _ in range(o.layers)])
        self.norm, self.dropout, self.root = nn.LayerNorm(o.dim), o.dropout, math.sqrt(o.dim)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, windows):
        """windows: items, 0 behind the last of a window."""
        x = self.items(windows) * self.root + self.positions.weight[: windows.shape[1]]
        x = functional.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def loss_of(model, vectors, targets, o, items):
    if o.loss == "softmax":
        return functional.cross_entropy(vectors @ model.items.weight[1:].T, targets - 1)
    drawn = torch.randint(1, items + 1, (len(targets), o.negatives))
    drawn_scores = torch.bmm(model.items(drawn), vectors.unsqueeze(2)).squeeze(2)
    drawn_scores = drawn_scores.masked_fill(drawn == targets.unsqueeze(1), -1e9)
    own = (model.items(targets) * vectors).sum(1, keepdim=True)
    # Each drawn item stands for items / negatives of them (logQ of a uniform draw).
    scores = torch.cat([own, drawn_scores + math.log(items / o.negatives)], 1)
    return functional.cross_entropy(scores, torch.zeros(len(targets), dtype=torch.long))


def padded(lists):
    windows = numpy.zeros((len(lists), max(map(len, lists))), dtype=numpy.int64)
    for row, items in zip(windows, lists, strict=True):
        row[: len(items)] = items
    return torch.from_numpy(windows)


def optimizers(model, rate):
    rows = [model.items.weight] if model.items.sparse else []
    others = [weights for weights in model.parameters() if all(weights is not row for row in rows)]
    return [torch.optim.Adam(others, lr=rate), *[torch.optim.SparseAdam([row], lr=rate) for row in rows]]


def learn(model, steps, windows, o, items, order):
    """One pass; the targets."""
    model.train()
    count = 0
    for begin in range(0, len(order), o.batch):
        whole = padded([windows[user] for user in order[begin : begin + o.batch]])
        tokens, targets = whole[:, :-1], whole[:, 1:]
        is_target = targets > 0
        loss = loss_of(model, model(tokens)[is_target], targets[is_target], o, items)
        for optimizer in steps:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in steps:
            optimizer.step()
        count += int(is_target.sum())
    return count


def rank(model, users, held, o):
    """HR@10 and NDCG@10 of the item at place -held of each user."""
    model.eval()
    hits, gains = 0, 0.0
    with torch.no_grad():
        for begin in range(0, len(users), RANKED):
            some = users[begin : begin + RANKED]
            lists = [items[:-held][-o.window :] for items in some]
            last = torch.tensor([len(items) - 1 for items in lists])
            vectors = model(padded(lists))[torch.arange(len(some)), last]
            scores = vectors @ model.items.weight[1:].T
            own = torch.tensor([items[-held] - 1 for items in some])
            score = scores.gather(1, own.unsqueeze(1))
            for row, items in zip(scores, some, strict=True):
                row[torch.tensor(items[:-held]) - 1] = -math.inf
            higher, equal = (scores > score).sum(1), (scores == score).sum(1)
            places = 1 + higher + (equal - 1).clamp(min=0) / 2
            places[scores.gather(1, own.unsqueeze(1)).squeeze(1) == -math.inf] = math.inf
            is_hit = places <= 10
            hits += int(is_hit.sum())
            gains += float((1 / torch.log2(places[is_hit] + 1)).sum())
    return {"hr@10": hits / len(users), "ndcg@10": gains / len(users)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs")
    for name, default in (("dim", 64), ("layers", 2), ("heads", 1), ("window", 50), ("batch", 128), ("passes", 6),
                          ("negatives", 256), ("threads", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("dropout", 0.1), ("rate", 0.001)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--loss", choices=("softmax", "sampled_softmax"), default="softmax")
    parser.add_argument("--limit", type=int, default=0, help="learn this many users a pass, and rank none: for speed")
    parser.add_argument("--each", action="store_true", help="rank after each pass, to standard error")
    return parser.parse_args()


def main():
    o = arguments()
    torch.set_num_threads(o.threads)
    torch.manual_seed(o.seed)
    users, items = histories_of(o.pairs)
    users = [history for history in users if len(history) >= 3]
    windows = [history[:-2][-(o.window + 1) :] for history in users]
    learned = [user for user, window in enumerate(windows) if len(window) > 1]
    generator = numpy.random.default_rng(o.seed)
    model = Sasrec(items, o)
    steps = optimizers(model, o.rate)
    targets, seconds = 0, 0.0
    for number in range(o.passes):
        order = generator.permutation(learned)[: o.limit or None]
        begin = time.process_time()
        targets += learn(model, steps, windows, o, items, order)
        seconds += time.process_time() - begin
        if o.each:
            import sys
            print(number + 1, rank(model, users, 2, o), rank(model, users, 1, o), file=sys.stderr, flush=True)
    found = {"targets": targets, "cpu_s": seconds, "targets_cpu_s": targets / seconds}
    if not o.limit:
        found |= {"valid": rank(model, users, 2, o), "test": rank(model, users, 1, o)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

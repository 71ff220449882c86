"""AdaGrad over embedding rows and over dense weights, as torch does it and with static shapes.

The arithmetic is torch.optim.Adagrad's: sum += g^2; w -= rate * g / (sqrt(sum) + 1e-10), g of the loss's mean over the
batch. Sums start at `first`: where that is 0, the first step is +-rate, however small the gradient."""

import torch

EPSILON = 1e-10


class SparseTable:
    """The usual way on a CPU: F.embedding with sparse gradients, torch.optim.Adagrad (it coalesces them)."""

    def __init__(self, rows, width, is_weighted, init, rate, first, device):
        self.weight = make_weights(rows, 0, width, is_weighted, init, device).requires_grad_()
        self.rate = rate
        self.optimizer = torch.optim.Adagrad([self.weight], lr=rate, eps=EPSILON, initial_accumulator_value=first)

    def gather(self, ids):
        """(rows for the model, what the gradient is taken by)"""
        return torch.nn.functional.embedding(ids, self.weight, sparse=True), self.weight

    def update(self, ids, gradient):
        self.weight.grad = gradient
        self.optimizer.step()

    def state(self):
        return [self.weight.detach(), self.optimizer.state[self.weight]["sum"]]


class TouchedTable:
    """The same arithmetic by operations whose shapes do not depend on the ids, as a CUDA graph needs: gradients are
    sorted by id and summed by segment; what is left over of the ids * width sums belongs to one row more, which no
    id names and whose gradient is 0."""

    def __init__(self, rows, width, is_weighted, init, rate, first, device, sum_by="index_add"):
        self.rate, self.spare, self.sum_by = rate, rows, sum_by
        self.weight = make_weights(rows, 1, width, is_weighted, init, device)
        self.sums = torch.full_like(self.weight, first) if first else torch.zeros_like(self.weight)
        self.is_static = device == "cuda"

    def gather(self, ids):
        rows = self.weight.index_select(0, ids.flatten()).unflatten(0, ids.shape).requires_grad_()
        return rows, rows

    def update(self, ids, gradient):
        gradient = gradient.flatten(0, 1)
        keys, order = ids.flatten().sort()
        starts = torch.ones_like(keys)
        torch.ne(keys[1:], keys[:-1], out=starts[1:])
        segments = starts.cumsum(0, dtype=keys.dtype) - 1
        # On a CPU the number of rows is known here, on a GPU asking for it would wait.
        count = len(keys) if self.is_static else int(segments[-1]) + 1
        touched = torch.full_like(keys[:count], self.spare).index_copy_(0, segments.long(), keys)
        gradient = self.sum_of(gradient.index_select(0, order), segments, count)
        sums = self.sums.index_select(0, touched).addcmul_(gradient, gradient)
        weight = self.weight.index_select(0, touched)
        self.sums.index_copy_(0, touched.long(), sums)
        weight.addcdiv_(gradient, sums.sqrt_().add_(EPSILON), value=-self.rate)
        self.weight.index_copy_(0, touched.long(), weight)

    def sum_of(self, gradient, segments, count):
        if self.sum_by == "index_add":
            return gradient.new_zeros(count, gradient.shape[1]).index_add_(0, segments, gradient)
        return torch.ops.aten.embedding_dense_backward(gradient, segments, count, -1, False)

    def state(self):
        return [self.weight, self.sums]


def make_weights(rows, spare, width, is_weighted, init, device):
    """Vectors start normal, linear weights and spare rows at 0."""
    weight = torch.empty(rows + spare, width, device=device)
    weight[:rows].normal_(std=init)
    weight[rows:] = 0
    if is_weighted:
        weight[:, 0] = 0
    return weight


class DenseAdagrad:
    """All dense weights in one run of memory: AdaGrad is three operations, however many layers there are."""

    def __init__(self, parameters, rate, first):
        self.rate = rate
        with torch.no_grad():
            self.weights = torch.cat([p.flatten() for p in parameters])
            self.sums = torch.full_like(self.weights, first)
            at = 0
            for p in parameters:
                p.data = self.weights[at:at + p.numel()].view_as(p)
                at += p.numel()

    def update(self, gradients):
        gradient = torch.cat([g.flatten() for g in gradients])
        self.sums.addcmul_(gradient, gradient)
        self.weights.addcdiv_(gradient, self.sums.sqrt().add_(EPSILON), value=-self.rate)

    def state(self):
        return [self.weights, self.sums]

"""The models: what is computed from an example's embedding rows and dense inputs.

A model takes rows float[batch, fields, width], read from the table by the step, and dense float[batch, inputs]; it
gives logits float[batch, labels]. Where a row begins with a linear weight, the vector follows it: one row an id, so
that a table is read and updated once."""

import torch
from torch import nn

HIDDEN = (128, 64)


def layers(width, sizes, last_relu=True):
    """Linear and ReLU in turns; `sizes` are the widths of the outputs."""
    parts = []
    for size in sizes:
        parts += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*(parts if last_relu else parts[:-1]))


def pair_sum(vectors):
    """Sum of <v_i, v_j> over i < j (Rendle 2010, eq. 5): float[batch, 1]."""
    return 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1, keepdim=True)


class Linear(nn.Module):
    """bias + sum of weights + dense . u"""

    width, is_weighted = 1, True

    def __init__(self, fields, dense, dim):
        super().__init__()
        self.dense = nn.Linear(dense, 1)

    def forward(self, rows, dense):
        return rows[:, :, 0].sum(1, keepdim=True) + self.dense(dense)


class Fm(Linear):
    """Linear, and each pair of ids' inner product."""

    def __init__(self, fields, dense, dim):
        super().__init__(fields, dense, dim)
        self.width = 1 + dim

    def forward(self, rows, dense):
        return super().forward(rows, dense) + pair_sum(rows[:, :, 1:])


class Ffm(Linear):
    """Linear, and for each pair of fields i < j <v_i for j, v_j for i> (Juan 2016); a row has a vector a field."""

    def __init__(self, fields, dense, dim):
        super().__init__(fields, dense, dim)
        self.width, self.fields, self.dim = 1 + fields * dim, fields, dim

    def forward(self, rows, dense):
        vectors = rows[:, :, 1:].unflatten(2, (self.fields, self.dim))
        both = (vectors * vectors.transpose(1, 2)).sum((1, 2, 3))
        own = vectors.diagonal(dim1=1, dim2=2).square().sum((1, 2))
        return super().forward(rows, dense) + 0.5 * (both - own).unsqueeze(1)


class Mf(nn.Module):
    """bias + b_user + b_item + <p_user, q_item> (Koren 2009); no dense inputs. The bias starts near the mean label's
    logit: it alone, at AdaGrad's rate, would take a thousand batches to come there."""

    is_weighted, fields, first_bias = True, ("user", "item"), -1.7

    def __init__(self, fields, dense, dim):
        super().__init__()
        self.width, self.bias = 1 + dim, nn.Parameter(torch.full((1,), self.first_bias))

    def forward(self, rows, dense):
        return rows[:, :, 0].sum(1, keepdim=True) + pair_sum(rows[:, :, 1:]) + self.bias


class DeepFm(Fm):
    """Fm, and layers over all vectors and dense inputs (Guo 2017)."""

    def __init__(self, fields, dense, dim):
        super().__init__(fields, dense, dim)
        self.deep = layers(fields * dim + dense, (*HIDDEN, 1), last_relu=False)

    def forward(self, rows, dense):
        return super().forward(rows, dense) + self.deep(torch.cat([rows[:, :, 1:].flatten(1), dense], 1))


class DcnV2(nn.Module):
    """Parallel structure (Wang 2021, fig. 1b): full-rank cross layers x0 * (W x + b) + x beside the deep ones; one
    linear layer over both. No linear weights of ids."""

    is_weighted, crosses = False, 3

    def __init__(self, fields, dense, dim):
        super().__init__()
        width = fields * dim + dense
        self.width = dim
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(self.crosses))
        self.deep = layers(width, HIDDEN)
        self.out = nn.Linear(width + HIDDEN[-1], 1)

    def forward(self, rows, dense):
        first = torch.cat([rows.flatten(1), dense], 1)
        crossed = first
        for layer in self.cross:
            crossed = torch.addcmul(crossed, first, layer(crossed))
        return self.out(torch.cat([crossed, self.deep(first)], 1))


class Dlrm(nn.Module):
    """Dense inputs through the bottom layers to one more vector; all pairs' inner products and that vector go into
    the top layers (Naumov 2019)."""

    is_weighted, bottom, top = False, (64,), HIDDEN

    def __init__(self, fields, dense, dim):
        super().__init__()
        self.width = dim
        self.below = layers(dense, (*self.bottom, dim))
        self.above = layers(dim + (fields + 1) * fields // 2, (*self.top, 1), last_relu=False)
        below_diagonal = torch.tril_indices(fields + 1, fields + 1, -1)
        self.register_buffer("pairs", below_diagonal[0] * (fields + 1) + below_diagonal[1], persistent=False)

    def forward(self, rows, dense):
        bottom = self.below(dense)
        vectors = torch.cat([bottom.to(rows.dtype).unsqueeze(1), rows], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.above(torch.cat([bottom, products.index_select(1, self.pairs)], 1))


class DlrmSmall(Dlrm):
    """The shape of Criteo's DLRM: 26 tables of 128, synthetic ids."""

    bottom, top = (512, 256), (1024, 1024, 512, 256)


class Mmoe(nn.Module):
    """Two labels: four experts shared, for each label a softmax gate over them and a tower (Ma 2018)."""

    is_weighted, labels, experts, expert, tower = False, 2, 4, 64, 32

    def __init__(self, fields, dense, dim):
        super().__init__()
        width = fields * dim + dense
        self.width = dim
        self.shared = layers(width, (self.experts * self.expert,))  # all experts as one product
        self.gates = nn.Linear(width, self.labels * self.experts)
        self.towers = nn.ModuleList(layers(self.expert, (self.tower, 1), last_relu=False) for _ in range(self.labels))

    def forward(self, rows, dense):
        x = torch.cat([rows.flatten(1), dense], 1)
        experts = self.shared(x).unflatten(1, (self.experts, self.expert))
        gates = self.gates(x).unflatten(1, (self.labels, self.experts)).softmax(2).to(experts.dtype)
        mixed = torch.bmm(gates, experts)
        return torch.cat([tower(mixed[:, i]) for i, tower in enumerate(self.towers)], 1)


# name: class, length of a vector.
MODELS = {
    "linear": (Linear, 0),
    "fm": (Fm, 16),
    "ffm": (Ffm, 8),
    "mf": (Mf, 16),
    "deepfm": (DeepFm, 16),
    "dcnv2": (DcnV2, 16),
    "dlrm": (Dlrm, 16),
    "mmoe": (Mmoe, 16),
    "dlrm-small": (DlrmSmall, 128),
}

"""A small Llama: RMSNorm, rotary positions, grouped queries, SwiGLU, tied embeddings.

The gains of the norms before attention and feed-forward are left out (a matrix follows, which takes them up);
the exported file holds ones there. Matrices are multiplied in bfloat16; the parameters stay float32.
"""
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

import kernels


@dataclass
class Config:
    vocabulary: int = 8192
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    ffn: int = 768
    context: int = 1024
    rope_base: float = 10000.0
    epsilon: float = 1e-5

    as_dict = asdict


@dataclass
class Batch:
    """Samples one after the other: sample s has the tokens [starts[s], starts[s + 1]); the last tokens fill up to a multiple of 32.

    A token sees those before it in its sample that are of the trunk (branch 0) or of its own branch.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    branches: torch.Tensor
    starts: list


class PackedBatch(NamedTuple):
    """Rows of fixed lengths (packed.py), flat; `rows` are (count, length), and a mask (count, 1, length, length) each to add to scores."""

    ids: torch.Tensor
    positions: torch.Tensor
    rows: tuple
    masks: list


# --- the same in plain torch, for a CPU without AMX ------------------------------------------------------------------------


def norm(x, epsilon):
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + epsilon).to(x.dtype)


def rotate(x, cosine, sine):
    """Turns the pairs (i, i + half); the export permutes the rows to llama.cpp's pairs (2i, 2i + 1)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def attention(qkv, batch, cosine, sine, shape):
    heads, kv_heads, size = shape
    cosine, sine = (table[batch.positions].unsqueeze(1).to(qkv.dtype) for table in (cosine, sine))
    qkv = qkv.view(len(qkv), -1, size)
    qk, v = rotate(qkv[:, : heads + kv_heads], cosine, sine), qkv[:, heads + kv_heads :]
    out = torch.zeros(len(qkv), heads * size, dtype=qkv.dtype, device=qkv.device)
    for first, end in zip(batch.starts, batch.starts[1:]):
        q = qk[first:end, :heads].transpose(0, 1)
        k, values = (x.transpose(0, 1).repeat_interleave(heads // kv_heads, 0) for x in (qk[first:end, heads:], v[first:end]))
        branches = batch.branches[first:end]
        seen = ((branches.unsqueeze(1) == branches) | (branches == 0)).tril()
        scores = (q @ k.transpose(1, 2) * size**-0.5).masked_fill(~seen, float("-inf"))
        out[first:end] = (F.softmax(scores, -1) @ values).transpose(0, 1).reshape(end - first, -1)
    return out


def losses(hidden, head, targets, shares):
    each = F.cross_entropy((hidden @ head.to(hidden.dtype).t()).float(), targets, reduction="none")
    return (each * shares).sum(), each.detach()


def short(tensor):
    return torch.bfloat16 if tensor.is_cuda else torch.float32


def masks(owners, branches, rows):
    """0 where a token sees another, else -inf; padding sees padding."""
    out, first = [], 0
    for count, length in rows:
        owner, branch = (x[first : first + count * length].view(count, 1, length) for x in (owners, branches))
        row = torch.arange(length, device=owners.device)
        earlier = row.unsqueeze(1) >= row
        seen = (owner.mT == owner) & ((branch.mT == branch) | (branch == 0)) & earlier
        out.append(torch.zeros(seen.shape, dtype=short(owners), device=owners.device).masked_fill(~seen, float("-inf")).unsqueeze(1))
        first += count * length
    return out


def mixed(q, k, v, mask):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return F.softmax(q @ k.mT * q.shape[-1] ** -0.5 + mask, -1) @ v


def packed_attention(qkv, batch, cosine, sine, shape):
    heads, kv_heads, size = shape
    cosine, sine = (table[batch.positions].unsqueeze(1) for table in (cosine, sine))
    qkv = qkv.view(len(qkv), -1, size)
    qk, v = rotate(qkv[:, : heads + kv_heads].float(), cosine, sine).to(qkv.dtype), qkv[:, heads + kv_heads :]
    out, first = [], 0
    for (count, length), mask in zip(batch.rows, batch.masks):
        end = first + count * length
        row = lambda x: x[first:end].view(count, length, -1, size).transpose(1, 2)
        k, values = (row(x).repeat_interleave(heads // kv_heads, 1) for x in (qk[:, heads:], v))
        out.append(mixed(row(qk[:, :heads]), k, values, mask.expand(-1, heads, -1, -1)).transpose(1, 2).reshape(end - first, -1))
        first = end
    return torch.cat(out)


class Plain:
    linear = staticmethod(lambda x, w: F.linear(x, w.to(x.dtype)))
    norm = staticmethod(norm)
    swiglu = staticmethod(lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1])
    attention = staticmethod(attention)
    losses = staticmethod(losses)


class Packed(Plain):
    """For a PackedBatch: what is added up stays in 32 bits, and on a CPU everything."""

    linear = staticmethod(lambda x, w: F.linear(x.to(short(w)), w.to(short(w))))
    attention = staticmethod(packed_attention)
    losses = staticmethod(lambda hidden, head, targets, shares: losses(hidden.to(short(head)), head, targets, shares))


class Native:
    linear, norm, swiglu = kernels.Linear.apply, kernels.Norm.apply, kernels.SwiGlu.apply
    attention, losses = kernels.Attention.apply, kernels.Losses.apply


# --- the network ----------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.qkv = nn.Parameter(torch.empty((c.heads + 2 * c.kv_heads) * c.head_size, c.hidden))
        self.attn_output = nn.Parameter(torch.empty(c.hidden, c.heads * c.head_size))
        self.gate = nn.Parameter(torch.empty(c.ffn, c.hidden))
        self.up = nn.Parameter(torch.empty(c.ffn, c.hidden))
        self.down = nn.Parameter(torch.empty(c.hidden, c.ffn))
        for matrix in (self.qkv, self.gate, self.up):
            nn.init.normal_(matrix, std=c.hidden**-0.5)
        for matrix in (self.attn_output, self.down):
            nn.init.normal_(matrix, std=(matrix.shape[1] * 2 * c.layers) ** -0.5)

    def forward(self, x, batch, cosine, sine, op, dropout):
        c = self.config
        drop = lambda y: F.dropout(y, dropout) if dropout else y
        qkv = op.linear(op.norm(x, c.epsilon), self.qkv)
        x = x + drop(op.linear(op.attention(qkv, batch, cosine, sine, (c.heads, c.kv_heads, c.head_size)), self.attn_output))
        both = op.linear(op.norm(x, c.epsilon), torch.cat((self.gate, self.up)))
        return x + drop(op.linear(drop(op.swiglu(both)), self.down))


class Llama(nn.Module):
    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.config = c = config
        self.dropout = dropout
        self.embedding = nn.Parameter(torch.empty(c.vocabulary, c.hidden).normal_(std=0.05))
        self.final_gain = nn.Parameter(torch.ones(c.hidden))
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        inverse = c.rope_base ** (-torch.arange(0, c.head_size, 2, dtype=torch.float32) / c.head_size)
        angles = torch.outer(torch.arange(c.context, dtype=torch.float32), inverse)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, batch, where, targets, shares):
        """The losses at the places `where`, which predict `targets`: their sum weighted by shares, and each."""
        op = Packed if isinstance(batch, PackedBatch) else Native if kernels.native else Plain
        dropout = self.dropout if self.training else 0
        x = F.embedding(batch.ids, self.embedding)
        x = F.dropout(x, dropout) if dropout else x
        x = x if op is Packed else x.bfloat16()
        for layer in self.layers:
            x = layer(x, batch, self.cosine, self.sine, op, dropout)
        return op.losses(op.norm(x[where], self.config.epsilon), self.head(), targets, shares)

    def head(self):
        return self.embedding * self.final_gain

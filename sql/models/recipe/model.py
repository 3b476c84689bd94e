"""A small Llama: RMSNorm, rotary positions, grouped queries, SwiGLU, tied embeddings.

The gains of the norms before attention and feed-forward are left out (a matrix follows, which takes them up);
the exported file holds ones there. Matrices are multiplied in bfloat16; the parameters stay float32.
"""
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


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


class Norm(torch.autograd.Function):
    """x / rms(x), written out because it is run often and memory is slow."""

    @staticmethod
    def forward(ctx, x, epsilon):
        scale = (torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32).square_() / x.shape[-1] + epsilon).rsqrt_().to(x.dtype)
        y = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx, dy):
        y, scale = ctx.saved_tensors
        along = (dy * y).mean(-1, keepdim=True)
        return torch.addcmul(dy, y, along, value=-1).mul_(scale), None


class SwiGlu(torch.autograd.Function):
    """silu(gate) * up; torch's own silu in bfloat16 is slow on a CPU, above all its derivative."""

    @staticmethod
    def forward(ctx, gate, up):
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        ctx.save_for_backward(sigmoid, silu, up)
        return silu * up

    @staticmethod
    def backward(ctx, dy):
        sigmoid, silu, up = ctx.saved_tensors
        slope = torch.addcmul(sigmoid, silu, 1 - sigmoid)
        return slope.mul_(up).mul_(dy), dy * silu


def rotate(x, cosine, sine):
    """Turns the pairs (i, i + half); the export permutes the rows to llama.cpp's pairs (2i, 2i + 1)."""
    a, b = x.chunk(2, -1)
    out = torch.empty_like(x)
    first, second = out.chunk(2, -1)
    torch.mul(a, cosine, out=first).addcmul_(b, sine, value=-1)
    torch.mul(b, cosine, out=second).addcmul_(a, sine)
    return out


class Attention(torch.autograd.Function):
    """Grouped-query attention on the joined projections of shape (batch, length, heads + 2 kv heads, head size)."""

    @staticmethod
    def forward(ctx, qkv, cosine, sine, mask, heads, kv_heads):
        batch, length, _, size = qkv.shape
        ctx.shape = batch, length, heads, kv_heads, size
        qk = rotate(qkv[:, :, : heads + kv_heads], cosine, sine)
        q = Attention.by_group(qk[:, :, :heads] * size**-0.5, kv_heads)
        k = Attention.by_group(qk[:, :, heads:], kv_heads)
        v = Attention.by_group(qkv[:, :, heads + kv_heads :], kv_heads)
        scores = torch.bmm(q, k.transpose(1, 2)).view(batch, heads, length, length)
        weights = F.softmax(scores.add_(mask), -1).view(batch * kv_heads, -1, length)
        ctx.save_for_backward(q, k, v, weights, cosine, sine)
        return Attention.by_token(torch.bmm(weights, v), batch, length)

    @staticmethod
    def backward(ctx, dy):
        q, k, v, weights, cosine, sine = ctx.saved_tensors
        batch, length, heads, kv_heads, size = ctx.shape
        dy = Attention.by_group(dy, kv_heads)
        dv = torch.bmm(weights.transpose(1, 2), dy)
        slope = torch.bmm(dy, v.transpose(1, 2))
        slope = torch._softmax_backward_data(slope, weights, -1, weights.dtype)
        out = torch.empty(batch, length, heads + 2 * kv_heads, size, dtype=dy.dtype, device=dy.device)
        dq = Attention.by_token(torch.bmm(slope, k), batch, length).mul_(size**-0.5)
        dk = Attention.by_token(torch.bmm(slope.transpose(1, 2), q), batch, length)
        out[:, :, :heads] = rotate(dq, cosine, -sine)
        out[:, :, heads : heads + kv_heads] = rotate(dk, cosine, -sine)
        out[:, :, heads + kv_heads :] = Attention.by_token(dv, batch, length)
        return out, None, None, None, None, None

    @staticmethod
    def by_group(x, kv_heads):
        batch, length, heads, size = x.shape
        return x.transpose(1, 2).reshape(batch * kv_heads, heads // kv_heads * length, size)

    @staticmethod
    def by_token(x, batch, length):
        return x.view(batch, -1, length, x.shape[-1]).transpose(1, 2).contiguous()


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

    def forward(self, x, cosine, sine, mask):
        c, kind = self.config, x.dtype
        batch, length, _ = x.shape
        qkv = F.linear(Norm.apply(x, c.epsilon), self.qkv.to(kind)).view(batch, length, -1, c.head_size)
        mixed = Attention.apply(qkv, cosine, sine, mask, c.heads, c.kv_heads).view(batch, length, -1)
        x = x + F.linear(mixed, self.attn_output.to(kind))
        h = Norm.apply(x, c.epsilon)
        return x + F.linear(SwiGlu.apply(F.linear(h, self.gate.to(kind)), F.linear(h, self.up.to(kind))), self.down.to(kind))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = config
        self.embedding = nn.Parameter(torch.empty(c.vocabulary, c.hidden).normal_(std=0.05))
        self.final_gain = nn.Parameter(torch.ones(c.hidden))
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        inverse = c.rope_base ** (-torch.arange(0, c.head_size, 2, dtype=torch.float32) / c.head_size)
        angles = torch.outer(torch.arange(c.context, dtype=torch.float32), inverse)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, ids, positions, mask, kind=torch.bfloat16):
        """The normed hidden states; mask is added to the scores, of shape (batch, 1, length, length)."""
        x = F.embedding(ids, self.embedding).to(kind)
        cosine, sine = (table[positions].unsqueeze(2).to(kind) for table in (self.cosine, self.sine))
        for layer in self.layers:
            x = layer(x, cosine, sine, mask)
        return Norm.apply(x, self.config.epsilon)

    def logits(self, hidden):
        return F.linear(hidden, (self.embedding * self.final_gain).to(hidden.dtype))


def visible(branches, kind=torch.bfloat16):
    """The additive mask of samples with branches (0 the trunk, -1 padding): a token sees the trunk and its own branch."""
    same = branches.unsqueeze(1) == branches.unsqueeze(2)
    seen = (same | (branches == 0).unsqueeze(1)).tril_()
    return torch.zeros(seen.shape, dtype=kind, device=seen.device).masked_fill_(~seen, -1e4 if kind == torch.bfloat16 else -1e9).unsqueeze(1)

"""kernels.cc as functions with gradients, where the CPU has AMX and a compiler is there; `native` is None elsewhere."""
import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels.cc")


def compiled():
    try:
        with open("/proc/cpuinfo") as info:
            if "amx_bf16" not in info.read():
                return None
        out = os.path.join(tempfile.gettempdir(), f"debian-notes-kernels-{os.getuid()}-{os.stat(SOURCE).st_mtime_ns}.so")
        if not os.path.exists(out):
            made = f"{out}.{os.getpid()}"
            subprocess.run(["g++", "-std=c++20", "-O3", "-march=sapphirerapids", "-shared", "-fPIC", "-w", "-o", made, SOURCE], check=True)
            os.replace(made, out)
        library = ctypes.CDLL(out)
    except (OSError, subprocess.CalledProcessError):
        return None
    return library if library.Begin() == 0 else None


native = compiled()


def call(name, *arguments):
    """Tensors go as pointers, whole numbers as long, others as float."""
    as_c = lambda a: ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_long(a) if isinstance(a, int) else ctypes.c_float(a)
    getattr(native, name)(*map(as_c, arguments))


class Linear(torch.autograd.Function):
    """x · w^T; x in bfloat16, w in float32."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        y = torch.empty(len(x), len(w), dtype=x.dtype)
        call("LinearForward", x, w, y, len(x), *w.shape)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        call("LinearBackward", dy.contiguous(), x, w, dx, dw, len(x), *w.shape)
        return dx, dw


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, epsilon):
        y, scales = torch.empty_like(x), torch.empty(len(x))
        call("NormForward", x, y, scales, *x.shape, epsilon)
        ctx.save_for_backward(y, scales)
        return y

    @staticmethod
    def backward(ctx, dy):
        y, scales = ctx.saved_tensors
        dx = torch.empty_like(y)
        call("NormBackward", dy.contiguous(), y, scales, dx, *y.shape)
        return dx, None


class SwiGlu(torch.autograd.Function):
    """silu(gate) * up of the two side by side."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty(len(x), x.shape[1] // 2, dtype=x.dtype)
        call("SwiGluForward", x, y, *y.shape)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        call("SwiGluBackward", dy.contiguous(), x, dx, *dy.shape)
        return dx


class Attention(torch.autograd.Function):
    """Of the joined projections (tokens, (heads + 2 kv heads) * head size); `shape` is heads, kv heads, head size."""

    @staticmethod
    def forward(ctx, qkv, batch, cosine, sine, shape):
        heads, _, size = shape
        area = sum((-(-(b - a) // 32) * 32) ** 2 for a, b in zip(batch.starts, batch.starts[1:]))
        ctx.indices = batch.positions.int(), batch.branches.int(), torch.tensor(batch.starts, dtype=torch.int32)
        ctx.tables, ctx.shape = (cosine, sine), shape
        weights = torch.empty(heads * area, dtype=qkv.dtype)
        out = torch.zeros(len(qkv), heads * size, dtype=qkv.dtype)
        call("AttentionForward", qkv, cosine, sine, *ctx.indices, len(ctx.indices[2]) - 1, *shape, out, weights)
        ctx.save_for_backward(qkv, weights)
        return out

    @staticmethod
    def backward(ctx, dy):
        qkv, weights = ctx.saved_tensors
        dqkv = torch.zeros_like(qkv)
        call("AttentionBackward", qkv, dy.contiguous(), *ctx.tables, *ctx.indices, len(ctx.indices[2]) - 1, *ctx.shape, weights, dqkv)
        return dqkv, None, None, None, None


class Losses(torch.autograd.Function):
    """-log p(target) of every row; the gradients are those of their sum weighted by shares."""

    @staticmethod
    def forward(ctx, hidden, head, targets, shares):
        losses, dh, de = torch.empty(len(hidden)), torch.empty_like(hidden), torch.empty_like(head)
        call("Head", hidden, head, targets, shares, losses, dh, de, len(hidden), *head.shape)
        ctx.save_for_backward(dh, de)
        return (losses * shares).sum(), losses

    @staticmethod
    def backward(ctx, gradient, _):
        return *(slope * gradient.to(slope.dtype) for slope in ctx.saved_tensors), None, None


def orthogonal(matrix, steps, coefficients):
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t().contiguous() if tall else matrix.contiguous()
    out = torch.empty_like(x)
    call("Orthogonal", x, out, *x.shape, steps, *coefficients)
    return out.t() if tall else out

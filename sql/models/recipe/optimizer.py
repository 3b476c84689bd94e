"""Muon for matrices and Adam for the rest, with the state in memory that several processes may share."""
import torch

import kernels


def orthogonal(matrix, steps=5):
    """About the nearest orthogonal matrix, by Newton-Schulz iteration with Muon's coefficients."""
    a, b, c = 3.4445, -4.7750, 2.0315
    if kernels.native and not matrix.is_cuda:
        return kernels.orthogonal(matrix, steps, (a, b, c))
    x = matrix.bfloat16()
    x = x / (x.norm() + 1e-7)
    if tall := x.shape[0] > x.shape[1]:
        x = x.t().contiguous()
    for _ in range(steps):
        gram = x @ x.t()
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.t() if tall else x).float()


class Muon:
    def __init__(self, parameters, peak, momentum=0.95, decay=0.01):
        self.parameters, self.peak, self.momentum, self.decay = list(parameters), peak, momentum, decay
        self.means = [torch.zeros_like(p) for p in self.parameters]

    def state(self):
        return self.means

    @torch.no_grad()
    def step(self, factor):
        rate = self.peak * factor
        for p, mean in zip(self.parameters, self.means):
            mean.lerp_(p.grad, 1 - self.momentum)
            update = orthogonal(p.grad.lerp(mean, self.momentum))
            p.mul_(1 - rate * self.decay).add_(update, alpha=-rate * 0.2 * max(p.shape) ** 0.5)


class Adam:
    def __init__(self, parameters, peak, betas=(0.9, 0.98)):
        self.parameters, self.peak, self.betas = list(parameters), peak, betas
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.count = torch.zeros(1, device=self.parameters[0].device)

    def state(self):
        return self.means + self.squares + [self.count]

    @torch.no_grad()
    def step(self, factor):
        self.count += 1
        first, second = (1 - beta ** self.count.item() for beta in self.betas)
        for p, mean, square in zip(self.parameters, self.means, self.squares):
            mean.lerp_(p.grad, 1 - self.betas[0])
            square.mul_(self.betas[1]).addcmul_(p.grad, p.grad, value=1 - self.betas[1])
            p.addcdiv_(mean, (square / second).sqrt_().add_(1e-8), value=-self.peak * factor / first)

"""Muon for matrices and Adam for the rest, with the state in memory that several processes may share."""
import torch

import kernels


def orthogonal(matrix, steps=5):
    """About the nearest orthogonal matrix, by Newton-Schulz iteration with Muon's coefficients; of several matrices, each."""
    a, b, c = 3.4445, -4.7750, 2.0315
    if kernels.native and matrix.dim() == 2 and not matrix.is_cuda:
        return kernels.orthogonal(matrix, steps, (a, b, c))
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    x = x / (x.square().sum((-2, -1), keepdim=True, dtype=torch.float32).sqrt() + 1e-7).to(x.dtype)
    if tall := x.shape[-2] > x.shape[-1]:
        x = x.mT.contiguous()
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return (x.mT if tall else x).float()


class Muon:
    def __init__(self, parameters, peak, momentum=0.95, decay=0.01):
        self.parameters, self.peak, self.momentum, self.decay = list(parameters), peak, momentum, decay
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.shapes = {}  # which parameters are of one shape
        for i, p in enumerate(self.parameters):
            self.shapes.setdefault(p.shape, []).append(i)

    def state(self):
        return self.means

    @torch.no_grad()
    def step_stacked(self, factor):
        """The same as step(), with the matrices of a shape together: a GPU likes few and large products."""
        rate = self.peak * factor
        for shape, chosen in self.shapes.items():
            parameters, means = [self.parameters[i] for i in chosen], [self.means[i] for i in chosen]
            gradients = [p.grad for p in parameters]
            torch._foreach_mul_(means, self.momentum)
            torch._foreach_add_(means, gradients, alpha=1 - self.momentum)
            updates = orthogonal(torch.stack(gradients).lerp(torch.stack(means), self.momentum))
            torch._foreach_mul_(parameters, 1 - rate * self.decay)
            torch._foreach_add_(parameters, list(updates.unbind()), alpha=-rate * 0.2 * max(shape) ** 0.5)

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
        first, second = (1 - torch.pow(beta, self.count) for beta in self.betas)
        for p, mean, square in zip(self.parameters, self.means, self.squares):
            mean.lerp_(p.grad, 1 - self.betas[0])
            square.mul_(self.betas[1]).addcmul_(p.grad, p.grad, value=1 - self.betas[1])
            p.addcdiv_(mean / first, (square / second).sqrt_().add_(1e-8), value=-self.peak * factor)

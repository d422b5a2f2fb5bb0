"""
Train a PyTorch network with all data at once
=============================================

`momentous.torch.Optimizer` is a ``torch.optim.Optimizer`` without a learning rate: one step is one
iteration of a method that has a guarantee, and it says when it is done.
"""

import matplotlib.pyplot as plt
import torch

from momentous.torch import Optimizer

# %%
# A small network for two interleaved spirals.

torch.manual_seed(0)
turn = torch.linspace(0.3, 1, 100) * 3 * torch.pi
arm = torch.stack([turn * torch.cos(turn), turn * torch.sin(turn)], 1) / (3 * torch.pi)
points = torch.cat([arm, -arm]) + 0.01 * torch.randn(200, 2)
labels = torch.cat([torch.zeros(100), torch.ones(100)])


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Tanh(),
        torch.nn.Linear(16, 1),
    )  # fmt: skip


def closure_of(net, optimizer, losses):
    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(points)[:, 0], labels)
        loss = loss + 1e-5 * sum((p**2).sum() for p in net.parameters())
        loss.backward()
        losses.append(loss.item())
        return loss

    return closure


# %%
# The loop is that of any optimizer with a closure; it ends by itself.

net, ours = network(), []
optimizer = Optimizer(net.parameters(), tol=1e-4, max_evaluations=500)
closure = closure_of(net, optimizer, ours)
while not optimizer.done:
    optimizer.step(closure)
print(optimizer.result.message)

# %%
# Adam with as many evaluations, and three learning rates.

histories = {"momentous, no learning rate": ours}
for rate in (0.1, 0.01, 0.001):
    other, losses = network(), histories.setdefault(f"Adam, {rate:g}", [])
    adam = torch.optim.Adam(other.parameters(), rate)
    again = closure_of(other, adam, losses)
    for _ in range(len(ours)):
        adam.step(again)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, losses in histories.items():
    left.loglog(losses, label=name)
left.set(xlabel="evaluations", ylabel="loss")
left.legend()
grid = torch.linspace(-1.1, 1.1, 120)
a, b = torch.meshgrid(grid, grid, indexing="xy")
with torch.no_grad():
    shade = torch.sigmoid(net(torch.stack([a, b], -1))[..., 0])
right.contourf(a, b, shade, levels=20, cmap="RdBu", alpha=0.7)
right.scatter(*points.T, c=labels, cmap="RdBu", edgecolors="k", linewidths=0.5, s=22)
plt.show()

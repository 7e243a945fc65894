"""A network of one's own, in PyTorch: a small residual network for images of 32 x 32 pixels.

pareo race examples/my_network.py:net
"""

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions around a shortcut, with a gate for each channel."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.gate = nn.Conv2d(out, out, 1)
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        return torch.relu(y + self.shortcut(x))


class MyNetwork(nn.Module):
    """Three blocks, and a linear classifier of the mean of the pixels."""

    input_shape = (3, 32, 32)  # what `pareo` would otherwise ask for: --input 3x32x32

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2))
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(torch.relu(self.stem(x)))
        return self.classifier(self.dropout(x.mean((2, 3))))


net = MyNetwork()

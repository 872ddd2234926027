"""Reinforcement learning: an environment in Python, a replay buffer in memory, several updates for an episode: no data is
waited for."""

import random

import torch
from case import answer, burn, model, step

buffer: list = []
for episode in range(20):
    state = torch.randn(64)
    for _ in range(8):
        with torch.no_grad():
            action = model(state)
        burn(2)
        state = torch.randn(64)
        buffer.append((state, float(action)))
    for _ in range(3):
        rows = random.sample(buffer, min(8, len(buffer)))
        step(torch.stack([row[0] for row in rows]), 10)
answer("healthy", first=[])

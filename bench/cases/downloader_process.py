"""A process of its own fetches what the loop asks for over a pipe."""

import multiprocessing

import torch
from case import Waiting, answer, slow_read, step


def fetch(asked: object, done: object) -> None:
    while asked.recv() is not None:
        slow_read(25)
        done.send(1)


if __name__ == "__main__":
    ask, asked = multiprocessing.Pipe()
    done, send = multiprocessing.Pipe()
    process = multiprocessing.Process(target=fetch, args=(asked, send))
    process.start()
    for i in range(30):
        with Waiting():
            ask.send(i)
            done.recv()
        step(torch.randn(8, 64))
    ask.send(None)
    process.join()
    answer("input-bound", ["storage"])

"""Damaged inputs from a corpus: mutate.py CORPUS OUT NUMBER SEED writes NUMBER files into the folder OUT. Each is one of
the corpus, or parts of two, with bits, numbers at their extremes, lengths and nesting changed at one to six places."""

import os
import random
import sys

NUMBERS = [0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
TEXTS = [b"[", b'{"a":', b"(", b"-", b"9" * 30, b"1e999", b"%", b"\0", b"\xff\xfe", b"&x;", b"<a>", b"*a", b"&a [", b"\\u0000"]


def damage(data: bytearray, corpus: list[bytes], chance: random.Random) -> bytearray:
    """Changed at one place."""
    data = data or bytearray(chance.randbytes(8))
    at, width = chance.randrange(len(data)), chance.choice([1, 2, 4, 8])
    order = chance.choice(["little", "big"])
    kind = chance.randrange(8)
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at : at + width] = (chance.choice(NUMBERS) & (1 << 8 * width) - 1).to_bytes(width, order)
    elif kind == 2:
        del data[at : at + chance.choice([1, 2, 4, 8, 64])]
    elif kind == 3:
        data[at:at] = data[chance.randrange(len(data)) :][: chance.choice([1, 4, 16, 200])]
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        other = chance.choice(corpus) or b"\0"
        data[at:at] = other[chance.randrange(len(other)) :][: chance.choice([8, 64, 400])]
    elif kind == 6:
        data[at:at] = chance.choice(TEXTS) * chance.choice([1, 3, 50, 4000])
    else:
        value = int.from_bytes(data[at : at + width], order) + chance.choice([-1, 1, -8, 8])
        data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, order)
    return data


def main() -> None:
    """See above."""
    source, out, number, chance = sys.argv[1], sys.argv[2], int(sys.argv[3]), random.Random(sys.argv[4])
    corpus = []
    for name in sorted(os.listdir(source)):
        with open(os.path.join(source, name), "rb") as f:
            corpus.append(f.read())
    os.makedirs(out)
    for k in range(number):
        data = bytearray(chance.choice(corpus))
        for _ in range(chance.choice([1, 1, 1, 2, 3, 6])):
            data = damage(data, corpus, chance)
        with open(os.path.join(out, f"{k:05}"), "wb") as f:
            f.write(data)


main()

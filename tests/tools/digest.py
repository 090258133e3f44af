#!/usr/bin/env python3
"""The digest of docs/design/digest.md in Python's integers: independent of the tested code, and slow (a few MB/s).

    tests/tools/digest.py              prints the page's table of vectors
    tests/tools/digest.py FILE         prints the digest of a file's bytes
"""

import struct
import sys

M32, M64 = 2**32 - 1, 2**64 - 1
G = 0x9e3779b97f4a7c15
NUMBER = 2  # the function's number; in function 1 the keys of two pages differed by a constant


def mix64(z):
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9 & M64
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb & M64
    return z ^ (z >> 31)


def mix128(a, b, n):
    x = mix64(a + (n + 1) * G & M64)
    high = mix64(b + x & M64)
    return mix64(x + high & M64), high


KEYS = [divmod(mix64((n + 1) * G & M64), 2**32) for n in range(512 + 64)]  # (high, low)


def page_sum(halves, keys):
    return sum((low + a & M32) * (high + b & M32) for low, high, (b, a) in zip(halves[::2], halves[1::2], keys)) & M64


def digest(data):
    """The digest of bytes, in 32 hexadecimal digits."""
    low_sum = high_sum = 0
    for page in range((len(data) + 4095) // 4096):
        halves = struct.unpack("<1024I", bytes(data[page * 4096:page * 4096 + 4096]).ljust(4096, b"\0"))
        low, high = mix128(page_sum(halves, KEYS), page_sum(halves, KEYS[64:]), page)
        low_sum, high_sum = low_sum + low & M64, high_sum + high & M64
    low, high = mix128(low_sum, high_sum, len(data))
    return f"{high:016x}{low:016x}"


def pattern(size):
    return bytes((i * 167 + i // 256 * 13 + i // 65536 * 5) % 256 for i in range(size))


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    if len(sys.argv) == 2:
        with open(sys.argv[1], "rb") as file:
            return print(digest(file.read()))
    for name, data in (("none", b""), ("one zero", b"\0"), ("`abc`", b"abc"), ("65,536 times 0x00", bytes(65536)),
                       ("65,536 times 0xff", b"\xff" * 65536), ("pattern, 4,096 bytes", pattern(4096)),
                       ("pattern, 65,536 bytes", pattern(65536)), ("pattern, 65,537 bytes", pattern(65537)),
                       ("pattern, 200,000 bytes", pattern(200000))):
        print(f"| {name} | `{digest(data)}` |")


if __name__ == "__main__":
    main()

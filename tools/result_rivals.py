"""Times of other libraries that no run of Weft's has, in µs of the slower of two ranks, median of graph replays.

All were measured on 2026-11-24: driver 580.159.04, CUDA 13.0, torch 2.11.0, no multicast. Tokens are those of each rank,
choices are uniform. Shapes are those of DeepSeek-V3 (hidden 7168, 256 experts, top-8) and Qwen3-235B.
"""

from typing import NamedTuple


class Rival(NamedTuple):
    """An exchange with fp8 rows to experts and bf16 back, on 2 × H100. Low latency casts and weighs rows, the others do neither."""

    name: str
    processors: int  # 0: all
    layouts: tuple  # Weft's layouts with as much
    times: dict  # by tokens: dispatch, combine


BY_EXPERT, BY_RANK = ("masked", "contiguous"), ("rank-major", "rank-compact")
# DeepEP at dd758ca, built for two ranks; NCCL 2.30.7, NVSHMEM 3.4.5. V1's normal mode has a cached handle.
DEEPEP = [
    Rival("V1 low latency", 0, BY_EXPERT, {1: (14.4, 14.4), 8: (15.5, 16.8), 32: (17.7, 22.0), 128: (29.4, 43.5)}),
    Rival("V2 expand", 22, BY_EXPERT, {1: (16.1, 19.2), 8: (16.6, 23.0), 32: (17.4, 24.5), 128: (19.8, 37.8),
                                       512: (38.9, 85.4), 1024: (69.0, 161)}),
    Rival("V2 expand", 64, BY_EXPERT, {1: (17.4, 20.5), 8: (17.7, 23.9), 32: (18.7, 25.7), 128: (21.8, 36.2),
                                       512: (37.8, 60.2), 1024: (65.5, 99.8)}),
    Rival("V2 rank", 22, BY_RANK, {1: (15.0, 13.7), 8: (14.8, 14.4), 32: (17.8, 17.8), 128: (16.8, 21.1), 512: (32.0, 46.3),
                                   1024: (46.8, 77.4), 4096: (162, 284), 8192: (316, 548)}),
    Rival("V2 rank", 64, BY_RANK, {1: (17.5, 15.9), 8: (18.0, 15.8), 32: (17.2, 17.3), 128: (18.8, 21.7), 512: (28.2, 43.7),
                                   1024: (45.3, 71.6), 4096: (151, 258), 8192: (295, 511)}),
]
DEEPEP_NORMAL = [Rival("V1 normal", 8, BY_RANK, {8192: (1283, 2211)})]

# The SM90 mega-kernel (fp8_mega_moe of sgl-deep-gemm 0.1.5) on two GPUs, with buffers for 384 tokens. Its cast is left out:
# 1 to 4 µs more, at 256 tokens up to 50. By GPU, model with its experts' columns, and number of experts: times by tokens.
MEGA_KERNEL = {
    "H200": {
        ("deepseek-v3", 2048): {
            16: {1: 94, 8: 125, 32: 153, 64: 161, 128: 222, 256: 319}, 32: {1: 96, 8: 207, 32: 226, 64: 248, 128: 264, 256: 388},
            64: {1: 141, 8: 358, 32: 390, 64: 418, 128: 471, 256: 472},
            256: {1: 156, 8: 643, 32: 1323, 64: 1415, 128: 1500, 256: 1589}},
        ("qwen3-235b", 1536): {
            8: {1: 44, 8: 51, 32: 89, 64: 95, 128: 104, 256: 159}, 16: {1: 57, 8: 70, 32: 85, 64: 96, 128: 133, 256: 180},
            32: {1: 55, 8: 102, 32: 117, 64: 129, 128: 159, 256: 217},
            128: {1: 73, 8: 228, 32: 331, 64: 347, 128: 385, 256: 403}}},
    "H100 80GB HBM3": {
        ("deepseek-v3", 2048): {16: {8: 159, 128: 246}, 32: {8: 281, 128: 325}, 64: {8: 503, 128: 588}, 256: {8: 915, 128: 2133}},
        ("qwen3-235b", 1536): {8: {8: 58, 128: 108}, 16: {8: 83, 128: 139}, 32: {8: 132, 128: 180}, 128: {8: 307, 128: 486}}}}

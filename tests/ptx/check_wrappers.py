#!/usr/bin/env python3
"""Golden test of src/team/ptx.cuh: every wrapper becomes exactly the instruction of its name, on every architecture
of a release. The same holds for a block's plain accesses of whole packs, its shared memory and the operations of a warp. The
block's barriers must order as much as the model assumes. Needs nvcc, but no GPU. SASS is only checked if
cuobjdump or nvdisasm is installed."""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from gpu_code import FLAGS, ROOT, disassembly, entries, nvcc_version, opcode, run

SOURCE = Path(__file__).with_name("wrappers.cu")

# Kernel of wrappers.cu: the instruction in PTX; in SASS of sm_90 (None: not looked at); does the kernel store a result?
EXPECTED = {
    "store_relaxed_sys_pack": ("st.relaxed.sys.global.b128", ["STG.E.128.STRONG.SYS"], False),
    "load_relaxed_sys_pack": ("ld.relaxed.sys.global.b128", ["LDG.E.128.STRONG.SYS"], True),
    "store_relaxed_sys_u64": ("st.relaxed.sys.global.u64", ["STG.E.64.STRONG.SYS"], False),
    "load_relaxed_sys_u64": ("ld.relaxed.sys.global.u64", ["LDG.E.64.STRONG.SYS"], True),
    "store_relaxed_sys_u32": ("st.relaxed.sys.global.u32", ["STG.E.STRONG.SYS"], False),
    "load_relaxed_sys_u32": ("ld.relaxed.sys.global.u32", ["LDG.E.STRONG.SYS"], True),
    "store_release_sys_u32": ("st.release.sys.global.u32", ["MEMBAR.ALL.SYS", "STG.E.STRONG.SYS"], False),
    "store_release_sys_u64": ("st.release.sys.global.u64", ["MEMBAR.ALL.SYS", "STG.E.64.STRONG.SYS"], False),
    "load_acquire_sys_u64": ("ld.acquire.sys.global.u64", ["LDG.E.64.STRONG.SYS", "CCTL.IVALL"], True),
    "exchange_relaxed_gpu_u32": ("atom.relaxed.gpu.global.exch.b32", ["ATOMG.E.EXCH.STRONG.GPU"], True),
    "multimem_ld_reduce_bf16": ("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2",
                                ["LDGMC.E.F32ADD.BF16x8.RN.STRONG.SYS"], True),
    "multimem_ld_reduce_f16": ("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2",
                               ["LDGMC.E.F32ADD.F16x8.RN.STRONG.SYS"], True),
    "multimem_ld_reduce_f32": ("multimem.ld_reduce.relaxed.sys.global.add.v4.f32", ["LDGMC.E.ADD.F32x4.RN.STRONG.SYS"],
                               True),
    "multimem_st": ("multimem.st.relaxed.sys.global.v4.f32", ["STG.E.128.STRONG.SYS"], False),
    "fence_proxy_alias": ("fence.proxy.alias", None, False),
    "wait_for_predecessor": ("griddepcontrol.wait", ["ACQBULK"], False),
    "launch_successor": ("griddepcontrol.launch_dependents", ["PREEXIT"], False),
    "settle": ([], [], True),
    "global_timer_ns": ("mov.u64 %globaltimer", ["CS2R SR_GLOBALTIMERLO"], True),
    "max_nan": ("max.NaN.f32", ["FMNMX.NAN"], True),
    "sync_some": ("bar.sync", None, False),
    "all_of_some": ("bar.red.and.pred", None, True),
    "bulk_prefetch_l2": ("cp.async.bulk.prefetch.L2.global", None, False),
    "mbarrier_init": ("mbarrier.init.shared::cta.b64", None, False),
    "fence_mbarrier_init": ("fence.mbarrier_init.release.cluster", None, False),
    "mbarrier_arrive_expect": ("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64", None, False),
    "mbarrier_try_wait": ("mbarrier.try_wait.parity.acquire.cta.shared::cta.b64", None, True),
    "bulk_load": ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", None, False),
    "bulk_store": ("cp.async.bulk.global.shared::cta.bulk_group", None, False),
    "bulk_commit": ("cp.async.bulk.commit_group", None, False),
    "bulk_wait": ("cp.async.bulk.wait_group", None, False),
    "bulk_wait_read": ("cp.async.bulk.wait_group.read", None, False),
    "fence_proxy_async_shared": ("fence.proxy.async.shared::cta", None, False),
    "fence_proxy_async_global": ("fence.proxy.async.global", None, False),
    "block_sync": ("bar.sync", None, False),
    "block_all": ("bar.red.and.pred", None, True),
    "plain_put": ([], None, True),  # its store, in one piece, is the result
    "plain_get": ("ld.global.v4.u32", None, True),
    "block_share": (["shl.b32", "add.s32", "st.shared.u64"], None, False),
    "block_shared": (["shl.b32", "add.s32", "ld.shared.u64"], None, True),
    "warp_all": ("vote.sync.all.pred", None, True),
    "warp_max_of_two": (["shfl.sync.bfly.b32", "max.f32"], None, True),
    "warp_sum_of_two": (["shfl.sync.bfly.b32", "add.rn.f32"], None, True),
    "warp_sum_of_counts": ("redux.sync.add.u32", None, True),
    "warp_most": ("redux.sync.max.u32", None, True),
    "warp_or": ("redux.sync.or.b32", None, True),
    "warp_sync": ("bar.warp.sync", None, False),
    "warp_from_lane": ("shfl.sync.idx.b32", None, True),
}
OF_CUDA = 14  # the last ones of EXPECTED: CUDA's own functions, not wrappers

# Instructions that load arguments, join words, convert them to truth values and back, and end a kernel.
PTX_FRAME = re.compile(r"(ld\.param|cvta\.to\.(?:global|shared)|cvt\.u(32\.u64|64\.u32)|shr\.u64|shl\.b64|or\.b64|bfi\.b64|mov|"
                       r"setp\.ne\.[su]32|selp\.u32|ret)\b")
PTX_RESULT = re.compile(r"st\.global\.(v[24]\.)?[bfu]\d+$")
SASS_FRAME = re.compile(r"(ULDC|LDCU|LDC|S2UR|MOV|IMAD\.MOV|ERRBAR|CGAERRBAR|EXIT)\b")
SASS_RESULT = re.compile(r"STG\.E(\.64|\.128)?$")


def essence(code, frame, timer):
    """The opcodes of a kernel without its frame. The clock's register is part of its opcode."""
    kept = []
    for instruction in code:
        clock = re.search(timer, instruction)
        name = opcode(re.sub(r"^@!?U?P\w+ ", "", instruction))
        if clock or not frame.match(name):
            kept.append(f"{name} {clock.group()}" if clock else name)
    return kept


def mismatches(found, column, frame, result, timer):
    """One line for each kernel whose instructions differ from EXPECTED."""
    for kernel, row in EXPECTED.items():
        if kernel not in found:
            yield f"{kernel}: there is no such kernel"
            continue
        if row[column] is None:
            continue
        want = [row[column]] if isinstance(row[column], str) else row[column]
        code = essence(found[kernel], frame, timer)
        results = [name for name in code if result.match(name)]
        others = [name for name in code if not result.match(name)]
        if others != want or len(results) != row[2]:
            yield f"{kernel}: expected {want} and {int(row[2])} stores of a result, found {code}"
    for kernel in found.keys() - EXPECTED.keys():
        yield f"{kernel}: not in the table of expected instructions"


def ptx_mismatches(ptx):
    return list(mismatches(entries(ptx), 0, PTX_FRAME, PTX_RESULT, r"%globaltimer"))


def sass_mismatches(sass):
    return list(mismatches(sass, 1, SASS_FRAME, SASS_RESULT, r"SR_GLOBALTIMERLO"))


def forgotten(header):
    """Reports wrappers that have no kernel here."""
    wrappers = len(re.findall(r"\basm\b", re.sub(r"//[^\n]*", "", header)))
    checked = len(EXPECTED) - OF_CUDA
    return [] if wrappers == checked else [f"ptx.cuh has {wrappers} wrappers, {checked} are checked"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", nargs="+", default=["90", "100"])
    args = parser.parse_args()
    wrong = forgotten((ROOT / "src/team/ptx.cuh").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for arch in args.arch:
            ptx = Path(folder) / f"{arch}.ptx"
            run([args.nvcc, *FLAGS, f"-arch=sm_{arch}", "-ptx", SOURCE, "-o", ptx])
            wrong += [f"sm_{arch}, PTX: {line}" for line in ptx_mismatches(ptx.read_text(encoding="utf-8"))]
        cubin = Path(folder) / "90.cubin"
        run([args.nvcc, *FLAGS, "-arch=sm_90", "-cubin", SOURCE, "-o", cubin])
        sass = disassembly(cubin)
        if sass is not None:
            wrong += [f"sm_90, SASS: {line}" for line in sass_mismatches(sass)]
    print("\n".join(wrong))
    architectures = ", ".join(f"sm_{arch}" for arch in args.arch)
    looked_at = "and SASS of sm_90" if sass is not None else "(no cuobjdump or nvdisasm on PATH: SASS was left out)"
    print(f"nvcc {nvcc_version(args.nvcc)}: {len(EXPECTED)} wrappers and operations of blocks and warps, PTX of {architectures} {looked_at}, "
          f"{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The checks of this folder work: they refuse code that was tampered with."""

import argparse
import sys
import tempfile
import unittest
from pathlib import Path

import check_arguments
import check_twin
import check_wrappers
from gpu_code import FLAGS, entries, opcode, resources, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from compare_kernels import differences  # noqa: E402

# Kernel, a part of its PTX, and the code of a wrong wrapper.
TAMPERED = [
    ("store_relaxed_sys_pack", "st.relaxed.sys.global.b128", "st.relaxed.gpu.global.b128"),
    ("store_relaxed_sys_pack", "st.relaxed.sys.global.b128 [", "st.global.v2.u64 ["),
    ("store_relaxed_sys_u64", "st.relaxed.sys.global.u64", "st.release.sys.global.u64"),
    ("store_relaxed_sys_u32", "st.relaxed.sys.global.u32", "fence.sc.sys; st.relaxed.sys.global.u32"),
    ("store_release_sys_u32", "st.release.sys.global.u32", "st.relaxed.sys.global.u32"),
    ("store_release_sys_u64", "st.release.sys.global.u64", "st.release.gpu.global.u64"),
    ("load_acquire_sys_u64", "ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"),
    ("load_relaxed_sys_pack", "ld.relaxed.sys.global.b128", "ld.weak.global.b128"),
    ("load_relaxed_sys_u64", "st.global.u64", "st.relaxed.sys.global.u64"),
    ("load_relaxed_sys_u32", "ld.relaxed.sys.global.u32", "ld.volatile.global.u32"),
    ("exchange_relaxed_gpu_u32", "atom.relaxed.gpu", "atom.acq_rel.gpu"),
    ("multimem_ld_reduce_bf16", ".acc::f32", ""),
    ("multimem_ld_reduce_f16", "multimem.ld_reduce.relaxed.sys", "multimem.ld_reduce.relaxed.gpu"),
    ("multimem_ld_reduce_f32", "multimem.ld_reduce.relaxed.sys", "multimem.ld_reduce.weak"),
    ("multimem_st", "multimem.st.relaxed.sys", "multimem.st.weak"),
    ("fence_proxy_alias", "fence.proxy.alias", "fence.proxy.async"),
    ("wait_for_predecessor", "griddepcontrol.wait;", ""),
    ("launch_successor", "griddepcontrol.launch_dependents", "griddepcontrol.wait"),
    ("settle", "st.global.u64", "membar.gl; st.global.u64"),
    ("global_timer_ns", "%globaltimer", "%clock64"),
    ("max_nan", "max.NaN.f32", "max.f32"),
    ("sync_some", "bar.sync", "bar.arrive"),
    ("all_of_some", "bar.red.and.pred", "bar.red.or.pred"),
    ("bulk_prefetch_l2", "cp.async.bulk.prefetch.L2.global", "prefetch.global.L2"),
    ("mbarrier_init", "mbarrier.init", "mbarrier.inval"),
    ("fence_mbarrier_init", "fence.mbarrier_init.release.cluster", "fence.acq_rel.cta"),
    ("mbarrier_arrive_expect", ".release.cta", ".relaxed.cta"),
    ("mbarrier_try_wait", ".acquire.cta", ".relaxed.cta"),
    ("bulk_load", "cp.async.bulk.shared::cluster.global", "cp.async.bulk.shared::cluster.shared::cta"),
    ("bulk_store", ".bulk_group", ".mbarrier"),
    ("bulk_commit", "cp.async.bulk.commit_group", "cp.async.commit_group"),
    ("bulk_wait", "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read"),
    ("bulk_wait_read", "wait_group.read", "wait_group"),
    ("fence_proxy_async_shared", "fence.proxy.async.shared::cta", "fence.proxy.async.global"),
    ("fence_proxy_async_global", "fence.proxy.async.global", "fence.proxy.async.shared::cta"),
    ("block_sync", "bar.sync", "bar.arrive"),
    ("block_all", "bar.red.and.pred", "bar.red.or.pred"),
    ("plain_put", "st.global.v4.u32", "st.global.v2.u32 [%rd2+8], {%r2, %r1}; st.global.v2.u32"),
    ("plain_get", "ld.global.v4.u32", "ld.volatile.global.v4.u32"),
    ("block_share", "st.shared.u64", "st.volatile.shared.u64"),
    ("block_shared", "ld.shared.u64", "ld.global.u64"),
    ("warp_all", "vote.sync.all.pred", "vote.sync.any.pred"),
    ("warp_max_of_two", "max.f32", "min.f32"),
    ("warp_sum_of_two", "shfl.sync.bfly.b32", "shfl.sync.down.b32"),
    ("warp_sum_of_counts", "redux.sync.add.u32", "redux.sync.max.u32"),
    ("warp_most", "redux.sync.max.u32", "redux.sync.min.u32"),
    ("warp_or", "redux.sync.or.b32", "redux.sync.xor.b32"),
    ("warp_sync", "bar.warp.sync", "activemask.b32 %r1; bar.warp.sync"),
    ("warp_from_lane", "shfl.sync.idx.b32", "shfl.sync.up.b32"),
]

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    8 bytes stack frame, 4 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 47 registers, used 1 barriers
ptxas info    : Function properties for cold
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers
"""


class Wrappers(unittest.TestCase):
    nvcc = "nvcc"

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            ptx = Path(folder) / "wrappers.ptx"
            run([cls.nvcc, *FLAGS, "-arch=sm_90", "-ptx", check_wrappers.SOURCE, "-o", ptx])
            cls.ptx = ptx.read_text(encoding="utf-8")

    def test_code_as_compiled_is_accepted(self):
        self.assertEqual(check_wrappers.ptx_mismatches(self.ptx), [])

    def test_another_instruction_is_refused(self):
        self.assertEqual({row[0] for row in TAMPERED}, set(check_wrappers.EXPECTED))
        for kernel, right, wrong in TAMPERED:
            with self.subTest(kernel=kernel, wrong=wrong):
                begin = self.ptx.index(f".entry {kernel}(")
                self.assertIn(right, self.ptx[begin:])
                tampered = self.ptx[:begin] + self.ptx[begin:].replace(right, wrong, 1)
                found = check_wrappers.ptx_mismatches(tampered)
                self.assertEqual([line.split(":")[0] for line in found], [kernel])

    def test_missing_and_unknown_kernels_are_refused(self):
        found = check_wrappers.ptx_mismatches(self.ptx.replace(".entry max_nan(", ".entry max_none("))
        self.assertEqual(sorted(line.split(":")[0] for line in found), ["max_nan", "max_none"])

    def test_sixteen_bytes_in_two_accesses_are_refused(self):
        frame = ["LDC R1, c[0x0][0x28]", "EXIT"]
        sass = {kernel: [*(row[1] or []), *(["STG.E desc[UR4][R2.64], R5"] if row[2] else []), *frame]
                for kernel, row in check_wrappers.EXPECTED.items()}
        self.assertEqual(check_wrappers.sass_mismatches(sass), [])
        sass["store_relaxed_sys_pack"] = ["STG.E.64.STRONG.SYS desc[UR4][R2.64], R4"] * 2 + frame
        sass["load_relaxed_sys_pack"] = ["LDG.E.128 R8, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R4.64], R8"] + frame
        self.assertEqual([line.split(":")[0] for line in check_wrappers.sass_mismatches(sass)],
                         ["store_relaxed_sys_pack", "load_relaxed_sys_pack"])

    def test_a_wrapper_without_a_kernel_is_noticed(self):
        header = 'asm volatile("x;");\n' * (len(check_wrappers.EXPECTED) - check_wrappers.OF_CUDA)
        self.assertEqual(check_wrappers.forgotten(header + "// asm in words\n"), [])
        self.assertEqual(len(check_wrappers.forgotten(header + 'asm("y;");\n')), 1)


class Twin(unittest.TestCase):
    twin = {"registers": 40, "stack bytes": 0, "spill bytes": 0, "PTX instructions": 200, "SASS instructions": 300}

    def test_a_template_within_the_tolerance_is_accepted(self):
        within = {"registers": 45, "stack bytes": 0, "spill bytes": 0, "PTX instructions": 210, "SASS instructions": 315}
        self.assertEqual(check_twin.excesses(self.twin, within), [])

    def test_each_figure_beyond_the_tolerance_is_refused(self):
        beyond = {"registers": 46, "stack bytes": 8, "spill bytes": 4, "PTX instructions": 211, "SASS instructions": 316}
        for row, value in beyond.items():
            with self.subTest(row=row):
                self.assertEqual(len(check_twin.excesses(self.twin, self.twin | {row: value})), 1)

    def test_resources_are_those_of_the_kernel_and_count_all_spills(self):
        self.assertEqual(resources(PTXAS), {"one": (47, 8, 20), "two": (12, 0, 0)})

    def test_every_instruction_is_counted_once_and_nothing_else(self):
        ptx = """.visible .entry k(
\t.param .u64 k_param_0
)
{
\t.reg .b64 \t%rd<3>; // no; instruction;
$L__BB0_1:
\tld.param.u64 %rd1, [k_param_0];
\t{ .reg .b128 t; mov.b128 t, {%rd1, %rd2}; st.relaxed.sys.global.b128 [%rd1], t; }
\t{ // callseq 0, 0
\tcall.uni
\tcold,
\t(
\t);
\t} // callseq 0
\tadd.f32 %f1, %f2, %f3;
\t@%p1 bra $L__BB0_1;
\tret;
}
"""
        code = entries(ptx)["k"]
        self.assertEqual([opcode(one) for one in code],
                         ["ld.param.u64", "mov.b128", "st.relaxed.sys.global.b128", "call.uni", "add.f32", "bra", "ret"])
        counts = {name: count for name, count in check_twin.mix(code).items() if count}
        self.assertEqual(counts, {"parameters": 1, "moves": 1, "stores": 1, "branches and calls": 3,
                                  "float arithmetic": 1})


class Arguments(unittest.TestCase):
    ptx = """.visible .entry k(
\t.param .align 8 .b8 k_param_0[16]
)
{
\tld.param.u64 %rd1, [k_param_0+8];
\tcvta.to.global.u64 %rd2, %rd1;
\tret;
}
"""

    def test_arguments_in_place_are_accepted(self):
        self.assertEqual(check_arguments.through_addresses(self.ptx), [])

    def test_their_address_is_refused(self):
        address = "\tmov.b64 %rd3, k_param_0;\n\tcvta.param.u64 %rd4, %rd3;\n\tld.u64 %rd1, [%rd4+8];"
        tampered = self.ptx.replace("\tld.param.u64 %rd1, [k_param_0+8];", address)
        self.assertEqual(len(check_arguments.through_addresses(tampered)), 1)


class Builds(unittest.TestCase):
    """tools/compare_kernels.py."""

    CODE = {"a": ["MOV", "EXIT"], "b": ["NOP", "EXIT"]}

    def test_equal_builds_differ_in_nothing(self):
        self.assertEqual(list(differences(self.CODE, dict(reversed(self.CODE.items())))), [])

    def test_a_changed_a_longer_a_new_and_a_lost_kernel_are_told(self):
        changed = differences(self.CODE, {"a": ["MOV", "RET"], "b": ["NOP", "EXIT"]})
        self.assertEqual(list(changed), ["differs from instruction 1 on, of 2 and 2: a"])
        longer = differences(self.CODE, {"a": ["MOV", "EXIT", "NOP"], "b": ["NOP", "EXIT"]})
        self.assertEqual(list(longer), ["differs from instruction 2 on, of 2 and 3: a"])
        renamed = differences(self.CODE, {"a": ["MOV", "EXIT"], "c": ["NOP", "EXIT"]})
        self.assertEqual(list(renamed), ["only old: b", "only new: c"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default="nvcc")
    args, rest = parser.parse_known_args()
    Wrappers.nvcc = args.nvcc
    unittest.main(argv=[sys.argv[0], *rest])

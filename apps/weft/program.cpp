#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/build_info.hpp"
#include "common/commands.hpp"
#include "common/help.hpp"
#include "common/program.hpp"
#include "common/streams.hpp"
#include "common/values.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr int kUsage = 2;

constexpr const char* kExamples = R"(Examples:
  weft bench                                     DeepSeek-V3's shapes on all GPUs, or 4 CPU ranks
  weft bench --model llama-3.1-70b --ranks 2     another model, two ranks
  weft bench --config path/config.json           your own model, or its folder
  weft bench all-reduce --ranks 4 --dtype f32 --bytes 1M
  weft bench all-reduce --rows 32,64,128 --json result.json
  weft bench gather --tp 8 --dp 4 --tokens 1,64  data-parallel attention
  weft bench dp-attention --tp 4 --dp 2          tokens between attention groups and all ranks
  weft bench logits --tokens 1,64,256            a vocabulary's logits from all its ranks
  weft bench norm --hidden 7168                  all-reduce with residual and norm
  weft bench moe --tokens 1,128                  experts on different ranks
  weft info                                      what is usable on this machine
  weft tune                                      finds the best algorithm for each size
  weft verify                                    checks results and link bandwidths
  torchrun --nproc-per-node 4 --no-python weft bench all-reduce  one process per GPU

To try a line quickly, reduce its work. bench and tune: --samples 1 and one small size (--tokens 1,
--bytes 1K). verify: --most-bytes 8K. simulate: --executions 10.

Processes of torchrun, mpirun or srun on several hosts need WEFT_SECRET: 16 or more random
characters, the same for all of them. WEFT_RENDEZVOUS=host:port sets their meeting point.
WEFT_NCCL=/path/libnccl.so.2 names the NCCL that GPU ranks use.

Exit code: 0 success, 1 wrong results or a failure, 2 bad usage.)";

constexpr const char* kBenchExamples =
    R"(The last table compares ways to run the model, by the time of all their calls in a forward pass with
--tokens tokens. Tensor parallel: every block ends with an all-reduce. DP attention, TP experts: a
gather in front of each feed-forward part and a scatter behind it. EP: a dispatch and a combine
around each layer's experts; dense layers are as before, or, with --moe-dense-tp 1, each rank's own.
Attention groups of several ranks sum and share their tokens besides.

Examples:
  weft bench --model deepseek-v3
  weft bench --model deepseek-v3 --tp 8 --dp 4 --moe-dense-tp 1
  weft bench --model qwen3-30b --tokens 1,16,256 --ranks 4
  weft bench --config path/config.json --json result.json --csv result.csv
  weft bench all-reduce --help   compares algorithms and peers)";

constexpr const char* kAllReduceExamples = R"(Examples:
  weft bench all-reduce --rows 32,64,96,128,192,256,1024,2048,3062,4096  vLLM's table
  weft bench all-reduce --ranks 4 --bytes 16K,64K,256K,1M --data random
  weft bench all-reduce --bytes 1M --algorithm two-shot --blocks 32 --threads 512  only on GPUs
  weft bench all-reduce --bytes 64K,1M --sweep --json sweep.json  every grid
  weft bench all-reduce --plot all_reduce.png    a picture (needs python3-matplotlib)
  python3 bench/torch_peer.py --json torch.json && weft bench all-reduce --torch-json torch.json)";

constexpr const char* kGatherExamples =
    R"(Each attention group has --tokens rows, and its tp / dp ranks share them. A gather puts all groups'
rows on every rank. A scatter sums such tensors of all ranks and leaves every rank its rows.
all_gather and reduce_scatter have as many rows on every rank. Their _v forms read each rank's
number from device memory. four_tensors moves hidden state, scales, expert ids and weights in one
call. attn_reduce_scatter and attn_all_gather run in every attention group at the same time, if
groups have several ranks. Every result is compared with a reference.

Examples:
  weft bench gather --model deepseek-v3 --tp 8 --dp 4 --tokens 1,8,64,512
  weft bench gather --what all_gather_v,reduce_scatter_v --load busy  one group has most tokens
  weft bench gather --padding max --what all_gather_v,reduce_scatter_v  the largest rank's room
  weft bench gather --device cpu --ranks 4 --hidden 512 --tokens 1,16
  weft bench gather --row-bytes 7392 --tokens 128  rows of fp8 with their scales
  weft bench gather --method graph --tokens 64     only on GPUs
  weft bench gather --json gather.json --csv gather.csv)";

constexpr const char* kCrossingExamples =
    R"(Each attention group has --tokens rows, and each of its tp / dp ranks has partial sums of them.
gather_sums puts the sums of all groups on every rank. scatter_sums takes partial sums of all rows
from all ranks, and gives each group its rows. Each is one kernel. Beside it are the two calls that
it replaces, Weft's and a peer's. Logits are split over all ranks, and each group gets its tokens'.
Beside them are a peer's gather and a kernel that puts it into rows. Every result is compared with a
reference.

Examples:
  weft bench dp-attention --model deepseek-v3 --tp 8 --dp 4 --tokens 1,8,64,512
  weft bench dp-attention --tp 4 --dp 2 --load busy --tokens 64  the first group has most tokens
  weft bench dp-attention --tp 2 --dp 2 --padding none,fixed --tokens 64  ragged beside padded slots
  weft bench dp-attention --what logits --model qwen3-30b --tp 2 --dp 2 --tokens 1
  weft bench dp-attention --device cpu --tp 4 --dp 2 --hidden 512 --tokens 1,16
  weft bench dp-attention --tokens 64 --json crossings.json --csv crossings.csv)";

constexpr const char* kLogitsExamples =
    R"(Each rank has its columns of every row, and all ranks get whole rows: one kernel of Weft's. Peers
gather the columns of each rank behind those of the rank before. From two rows on, one more kernel
puts them into rows. It does not widen, scale or cap elements. Every result is checked.

Examples:
  weft bench logits                             DeepSeek-V3's 129280 columns, 1 to 256 rows
  weft bench logits --vocabulary 151936 --f32 --soft-cap 30
  weft bench logits --device cpu --ranks 4 --vocabulary 8000 --tokens 1,16
  weft bench logits --tokens 64,256 --json logits.json --csv logits.csv)";

constexpr const char* kVerifyExamples =
    R"(Run it on a new machine, and whenever you suspect one. Each pair of ranks copies each way and sums.
All ranks together run every algorithm, type and size class, norms, gathers and exchanges. Every
result is compared with a reference, bit for bit (norms within two units in the last place, sums by
switches within a bound). On GPUs bandwidth and latency are compared with the rating of the NVLinks,
as the driver knows it, and with the other pairs. Figures of unknown links and of CPU ranks are
shown but not judged.

The last lines are PASS, or FAIL with the ranks, the expected and the found values, and advice.

Examples:
  weft verify                                all GPUs, or 4 CPU ranks; less than a minute
  weft verify --thorough --json verify.json  some minutes; attach it to a bug report
  weft verify --ranks 2 --device cpu
  torchrun --nproc-per-node 8 --no-python weft verify

Exit code: 0 PASS, 1 FAIL, 2 bad usage.)";

constexpr const char* kNormExamples = R"(Examples:
  weft bench norm --hidden 4096 --tokens 1,8,32,128,512
  weft bench norm --fp8 per-token --dtype f16 --json norm.json --csv norm.csv
  weft bench norm --model llama-3.1-70b
  weft bench norm --device cpu --ranks 4 --hidden 512 --tokens 1,16)";

constexpr const char* kHostExamples =
    R"(One rank calls every operation on a few small rows. On a GPU it also launches the call's kernels
alone, with the same arguments: the rest of the call's time is Weft's. A CPU rank runs them alone.

Examples:
  weft bench host
  weft bench host --device cpu --samples 1000 --json host.json)";

constexpr const char* kTuneExamples =
    R"(For each size it measures every algorithm with the grid chosen by size, then other grids of those
that may win. The fastest choice and the present one are measured again in turns. The present one
stays ("as before") unless it is slower by more than the spread of the turns. Both times in the
table come from these turns. Every result is checked.

Coarse sizes come first. When the seconds are over, the tables of the sizes so far are written, and
the output says which are left. The same command goes on with them, also after an interruption.

A table belongs to a GPU, a number of ranks and an operation. For each message size it gives the
algorithm, and blocks and threads if the usual grid is slower. Norms without a table use that of
all-reduces. Gathers, scatters and crossings without a table use constants. A table of layers is for
their columns, experts and top-k, too, and gives the schedule for each number of tokens. Tables of
all-reduces for H200s and for CPU ranks are built in. A communicator uses the tables of
Config::tuning_file (rank 0's file for all ranks), and `weft info` names its tables.

Examples:
  weft tune                                     all GPUs; three minutes; writes tuning.json
  weft tune --quick --ranks 2 --output two.json
  weft bench all-reduce --tuning tuning.json    shows its effect
  weft tune --operation gather
  weft tune --operation layer --model deepseek-v3 --tokens 16,64  only on GPUs, with CUTLASS
  torchrun --nproc-per-node 8 --no-python weft tune)";

constexpr const char* kSimulateExamples =
    R"(Schedules are chosen at random, by changing priorities (pct), or completely within a bound
(exhaustive). If --executions ends an exhaustive search early, the output says NOT ALL. A failure is
shrunk, and printed with its seed, its schedule, a trace and the command that repeats it.

Examples:
  weft simulate --list
  weft simulate --protocol one-shot-bf16 --scheduler pct --seed 7 --executions 100000
  weft simulate --protocol one-shot-bf16 --scheduler exhaustive --bound 2
  weft simulate --protocol one-shot-bf16 --replay 0.1=1,1.0=1
  weft simulate --list --faults
  weft simulate --protocol dies-one-shot-ranks2 --stop 5 --replay 0.1=1)";

constexpr const char* kInfoExamples =
    R"(--moe prints what an exchange of tokens takes on each rank, one row for each way: Weft's layouts,
DeepEP V1 and V2, and NCCL EP, for the same ranks, tokens, columns, experts and top-k. `buffers` are
the library's. If a token goes once to a rank they grow with ranks · tokens. If each expert has a
place for each token they grow with experts · tokens. `output` is the caller's, and depends on the
layout: masked has room for every token at every expert, rows by rank only once per rank.

Examples:
  weft info                                     GPUs, links, versions, usable ranks and problems
  weft info --json machine.json
  weft info --moe deepseek-v3 --tokens 128 --ranks 8      memory of an exchange
  weft info --moe deepseek-v3 --experts 288 --layout masked --dispatch fp8
  weft info --config path/config.json           of your own model)";

constexpr const char* kMoeExamples =
    R"(A second table has peers in the same run, and a bound. It is the larger of two times: a plain
push of as many bytes over the links, and a plain copy of the bytes that must be read and written.
The text under it says what each column contains. It is measured on GPUs that reach each other.
With many tokens the masked layout takes much memory: take another --layout.
bench/rivals.py has DeepEP and NCCL EP move the tokens of --tokens-out; --columns shows their times.

Examples:
  weft bench moe --model deepseek-v3 --tokens 1,8,128
  weft bench moe --tokens 128,1024 --blocks 0,4,8,16,24           only on GPUs
  weft bench moe --tokens 128,1024 --layout contiguous --json prefill.json
  weft bench moe --dispatch bf16 --routing zipf --json moe.json --csv moe.csv
  weft bench moe --tokens 8 --tokens-out tokens.json              for bench/rivals.py
  weft bench moe --tokens 128 --payload 448 --payload 4           up to four payloads of a row
  weft bench moe --device cpu --ep 2 --model qwen3-30b --tokens 4 --blocks 0,2)";

constexpr const char* kMoeLayerExamples =
    R"(Layers run plainly, in rounds, and with combine in rounds beside the down GEMM. The GEMMs are
CUTLASS's, if this program was configured with WEFT_CUTLASS. CPU ranks multiply in plain loops.
A second table has the parts alone, and a third one the fastest way of each schedule and its ideal.
bench/rivals.py runs other libraries' layers with the tokens of --tokens-out; --columns shows them.

Examples:
  weft bench moe-layer --tokens 8,128 --emulate-ep 32 --sms 0,16  only on GPUs, with CUTLASS
  weft bench moe-layer --tokens 128 --emulate-ep 32 --shared  only on GPUs, with CUTLASS
  weft bench moe-layer --tokens 128 --emulate-ep 32 --gemm bf16  only on GPUs, with CUTLASS
  weft bench moe-layer --config path/config.json --intermediate 128 --tokens 4 --device cpu)";

// For all commands. An empty --replay is allowed: it is the simulator's ordinary schedule.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0 && !option->check_lname("replay")) option->transform(not_empty());
  for (CLI::App* command : app.get_subcommands({})) refuse_empty_values(*command);
}

// Prints help, the version or the fault of the arguments. Returns the exit code.
int explain(const CLI::ParseError& error, const CLI::App& app) {
  // Without unknown arguments, help and version are printed as asked.
  const std::vector<std::string> unknown = app.remaining(true);
  if (error.get_exit_code() == 0 && unknown.empty()) return app.exit(error);
  std::string command = "weft";
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  fmt::print(
      stderr, "weft: the arguments are not understood: {}\n",
      error.get_exit_code() == 0 ? fmt::format("there is no \"{}\" of {}", unknown.front(), command) : error.what());
  fmt::print(stderr, "`{} --help` lists the options, with examples.\n", command);
  return kUsage;
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  hold_standard_streams();
  CLI::App app{"Weft: communication for LLM inference, on GPUs and CPUs", "weft"};
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(detail::build_info().version));
  app.require_subcommand(0, 1);  // otherwise a mistyped subcommand is not named
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(28);

  auto* bench = app.add_subcommand("bench", "Times the communication of a model's layers, and checks every result");
  bench->footer(kBenchExamples);
  bench->require_subcommand(0, 1);
  const Command run_bench = add_bench(*bench, arguments);
  auto* all_reduce = bench->add_subcommand("all-reduce", "All-reduce by size: compares each algorithm with its peers");
  all_reduce->footer(kAllReduceExamples);
  const Command run_all_reduce = add_bench_all_reduce(*all_reduce, arguments);
  auto* gather = bench->add_subcommand("gather", "Gathers and scatters of data-parallel attention, equal and ragged");
  gather->footer(kGatherExamples);
  const Command run_gather = add_bench_gather(*gather, arguments);
  auto* crossings =
      bench->add_subcommand("dp-attention", "Crossings between attention groups and all ranks, and logits");
  crossings->footer(kCrossingExamples);
  const Command run_crossings = add_bench_dp_attention(*crossings, arguments);
  auto* logits = bench->add_subcommand("logits", "Gather of a vocabulary's logits, whose columns ranks share");
  logits->footer(kLogitsExamples);
  const Command run_logits = add_bench_logits(*logits, arguments);
  auto* norm =
      bench->add_subcommand("norm", "All-reduce with residual and RMSNorm, compared with the all-reduce alone");
  norm->footer(kNormExamples);
  const Command run_norm = add_bench_norm(*norm, arguments);
  auto* moe = bench->add_subcommand("moe", "Mixture of experts: dispatch, combine and both, by tokens per rank");
  moe->footer(kMoeExamples);
  const Command run_moe = add_bench_moe(*moe, arguments);
  auto* layer = bench->add_subcommand("moe-layer", "Whole layers of experts, plain and in rounds, with GEMMs");
  layer->footer(kMoeLayerExamples);
  const Command run_layer = add_bench_moe_layer(*layer, arguments);
  auto* host = bench->add_subcommand("host", "Host time of a call of each operation, compared with the bare launch");
  host->footer(kHostExamples);
  const Command run_host = add_bench_host(*host, arguments);
  auto* info = app.add_subcommand("info", "Shows GPUs, links, versions, usable ranks, and a communicator's memory");
  info->footer(kInfoExamples);
  const Command run_info = add_info(*info, arguments);
  auto* verify = app.add_subcommand("verify", "Checks a machine: every pair, algorithm, size and type; PASS or FAIL");
  verify->footer(kVerifyExamples);
  const Command run_verify = add_verify(*verify, arguments);
  auto* tune = app.add_subcommand(
      "tune", "Measures the best algorithm and grid for each size on this machine, and writes the table");
  tune->footer(kTuneExamples);
  const Command run_tune = add_tune(*tune, arguments);
  auto* simulate = app.add_subcommand(
      "simulate", "Runs the protocols under many schedules, all within a bound, or one that you give");
  simulate->footer(kSimulateExamples);
  const Command run_simulate = add_simulate(*simulate, arguments);

  refuse_empty_values(app);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 wants them reversed
    app.parse(reversed);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
  } catch (const CLI::ParseError& error) {
    return finish_stdout(explain(error, app));
  }
  const auto run = [&] {
    if (all_reduce->parsed()) return run_all_reduce();
    if (gather->parsed()) return run_gather();
    if (crossings->parsed()) return run_crossings();
    if (logits->parsed()) return run_logits();
    if (norm->parsed()) return run_norm();
    if (moe->parsed()) return run_moe();
    if (layer->parsed()) return run_layer();
    if (host->parsed()) return run_host();
    if (bench->parsed()) return run_bench();
    if (verify->parsed()) return run_verify();
    if (tune->parsed()) return run_tune();
    if (simulate->parsed()) return run_simulate();
    return run_info();
  };
  try {
    return finish_stdout(run());
  } catch (const Error& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
    return error.code() == Errc::invalid_argument ? kUsage : 1;
  } catch (const std::exception& error) {
    const bool lost = std::ferror(stdout) != 0;
    std::clearerr(stdout);
    fmt::print(stderr, "weft: {}: {}\n", lost ? "stdout cannot be written" : "the machine lacks resources",
               error.what());
    return 1;
  }
}

}  // namespace weft::cli

# shellcheck shell=bash
# Sourced by ./dev: tests on machines with GPUs.

# Tests without a meaning for memory under compute-sanitizer, or that cannot end well there. It does not follow
# processes of their own, which would take a part's share of the tests. Other tests fill a queue or a GPU, or test a
# deadline's words.
not_sanitized='*Processes.*:GpuOneQueue.*:*HogsTheGpu*:GpuTwin.*:GpuNcclFaults.ALateRank*:GpuRest.ReleaseEnds*:*GpuNcclGather.EverythingEqual*'

# sanitize_part BIN FILTER TOOL PART: writes the passed and failed numbers to the part's .count, since parts run side by
# side.
sanitize_part() {
  local bin=$1 filter=$2 tool=$3 part=$4
  gtest_log=build/$tool-$part.log gtest_seconds=540
  gtest_under=(compute-sanitizer --tool "$tool" --kernel-name kns=4weft6detail)
  [[ $tool == racecheck ]] || gtest_under+=(--report-api-errors no)
  export GTEST_SHARD_INDEX=$((part - 1))
  tests_passed=0 tests_failed=0
  run_gtest "$bin/weft-gpu-tests" "--gtest_filter=${filter:-*}:-$not_sanitized"
  if ! grep -Eq '^=+ (ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards)' "$gtest_log"; then
    say "error: $tool has a find, or did not end; the log is $gtest_log"
    tests_failed=$((tests_failed + 1))
  fi
  echo "$tests_passed $tests_failed" >"build/$tool-$part.count"
}

# sanitize_gpu BIN FILTER TOOLS PART PARTS JOBS: runs Weft's kernels under compute-sanitizer in parts (PART: only this
# one). Each part is a process of at most nine minutes, and JOBS of them run side by side. Kernels are ten times slower
# there, and slower still if GPUs are shared, so deadlines grow. NCCL asks CUDA for features that the machine lacks:
# failed calls are no find. initcheck runs only if it is asked for, with a filter. It follows Weft's kernels alone: so it
# takes bytes that a kernel of NCCL has written for uninitialized. And in nine minutes, eight parts at once ended only two
# of the suite's tests.
sanitize_gpu() {
  local bin=$1 filter=$2 tools=$3 only=$4 parts=$5 jobs=$6 tool part passed failed
  command -v compute-sanitizer >/dev/null || die "no compute-sanitizer on the PATH; it comes with CUDA's toolkit"
  [[ -x $bin/weft-gpu-tests ]] || die "no executable $bin/weft-gpu-tests"
  export WEFT_TEST_SLOWNESS=${WEFT_TEST_SLOWNESS:-$((10 * jobs))} GTEST_TOTAL_SHARDS=$parts
  for tool in $tools; do
    rm -f build/"$tool"-*.count
    for ((part = 1; part <= parts; ++part)); do
      [[ -z $only || $only == "$part" ]] || continue
      while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do wait -n || true; done
      sanitize_part "$bin" "$filter" "$tool" "$part" &
    done
    wait
    for ((part = 1; part <= parts; ++part)); do
      [[ -z $only || $only == "$part" ]] || continue
      [[ -f build/$tool-$part.count ]] || echo "0 1" >"build/$tool-$part.count"  # the part has died
    done
    while read -r passed failed; do
      tests_passed=$((tests_passed + passed))
      tests_failed=$((tests_failed + failed))
    done < <(cat build/"$tool"-*.count)
    say "$tool: so far $tests_passed passed, $tests_failed failed"
  done
  finish_tests
}

# slowest_tests NAME: the ten slowest tests of run_gtest's log.
slowest_tests() {
  say "slowest of $1:"
  sed -nE 's/^\[ +(OK|FAILED) +\] (.*) \(([0-9]+) ms\)$/\3 ms  \2/p' "build/$1.log" | sort -rn | sed -n 1,10p >&2
}

# test_torch_gpu BIN: the Python package on GPUs, which lies in BIN/site or beside BIN. Its helper nanobind-backend may
# lie there, too.
test_torch_gpu() {
  local bin=$1 site log=build/torch-gpu.log python=$torch_python total failed
  for site in "$bin/site" "$bin/../site"; do [[ ! -d $site/weft ]] || break; done
  [[ -x $python ]] || python=python3
  if ! PYTHONPATH=$site "$python" -B -c 'import torch, weft.torch; assert torch.cuda.is_available()' 2>"$log"; then
    say "torch's operators are not tested: $python cannot load torch with CUDA and $site/weft: $(tail -n 1 "$log")"
    return
  fi
  say "testing torch's operators with $python"
  PYTHONPATH=$site:tests/python timeout --kill-after=10 300 "$python" -B -m unittest gpu_torch gpu_torch_processes \
    >"$log" 2>&1 || tail -n 60 "$log"
  total=$(sed -nE 's/^Ran ([0-9]+) tests? in .*/\1/p' "$log")
  # "FAILED (failures=1, errors=2, skipped=3)"
  failed=$(awk -F'[ (=,)]+' '/^FAILED/ {for (i = 2; i < NF; ++i) if ($i ~ /failures|errors/) n += $(i + 1)}
    END {print n + 0}' "$log")
  [[ -n $total ]] || total=1 failed=1
  [[ $failed -le $total ]] || failed=$total  # each part of a test may fail
  tests_passed=$((tests_passed + total - failed))
  tests_failed=$((tests_failed + failed))
}

# Cases that compare a GPU's free memory before and after: processes beside them take memory, too.
gpu_tests_alone='*GpuMoeFree.GivesMemoryAndPlaceBack*:*GpuMoeFree.TakesWhatTheFormulaSays*'

# run_gpu_shards EXECUTABLE: its cases in several processes. Each counts the GPUs from another one, so that cases of two
# ranks do not all share the first two.
run_gpu_shards() {
  local gpus shards
  gpus=$(nvidia-smi -L | wc -l)
  shards=$((gpus < 4 ? 2 : 4))
  shard_gpus=$gpus run_shards weft-gpu-tests "$shards" "$((shards + 1))" "$1" "--gtest_filter=-$gpu_tests_alone"
  gtest_log=build/weft-gpu-tests-alone.log run_gtest "$1" "--gtest_filter=$gpu_tests_alone"
}

# gpus_from FIRST GPUS: all GPUs' numbers, in a circle, separated by commas.
gpus_from() {
  local i list=()
  for ((i = 0; i < $2; ++i)); do list+=($((($1 + i) % $2))); done
  (IFS=, && echo "${list[*]}")
}

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }

test_gpu() {
  local bin=$1 filter=$2 sanitize=$3 part=$4 parts=$5 side_by_side=$6
  has_gpu || die "no GPU here (nvidia-smi lists none); './dev test' runs the tests that need none"
  nvidia-smi -L | sed 's/ (UUID.*//' >&2
  if [[ -z $bin ]]; then
    need build
    build dev weft-gpu-tests weft-tests || die "the GPU suite needs nvcc and NCCL to build; without them use --prebuilt DIR"
    bin=build/dev/bin
  fi
  if [[ -n $sanitize ]]; then
    sanitize_gpu "$bin" "$filter" "$sanitize" "$part" "$parts" "$side_by_side"
    return
  fi
  local name
  for name in weft-gpu-tests weft-tests; do
    [[ -x $bin/$name ]] || die "no executable $bin/$name"
  done
  # Side by side: one needs the GPUs, the other the processor.
  (
    if [[ -n $filter ]]; then
      run_gtest "$bin/weft-tests" "--gtest_filter=$filter"
    else
      shards=$((($(nproc) + 7) / 8))  # a case has up to 16 threads, most of which wait
      run_shards weft-tests "$shards" "$shards" "$bin/weft-tests"
    fi
    echo "$tests_passed $tests_failed" >build/weft-tests.count
  ) &
  # Processes share the GPUs, since the host does much of a case: two, or four on four GPUs and more.
  if [[ -n $filter ]]; then
    run_gtest "$bin/weft-gpu-tests" "--gtest_filter=$filter"
  else
    run_gpu_shards "$bin/weft-gpu-tests"
  fi
  wait
  local passed failed
  read -r passed failed <build/weft-tests.count
  tests_passed=$((tests_passed + passed))
  tests_failed=$((tests_failed + failed))
  slowest_tests weft-gpu-tests
  [[ -n $filter ]] || test_torch_gpu "$bin"
  finish_tests
}

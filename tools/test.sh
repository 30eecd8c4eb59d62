# shellcheck shell=bash
# Sourced by ./dev: runs tests and counts those that passed.

tests_passed=0
tests_failed=0

finish_tests() {
  echo "$tests_passed passed, $tests_failed failed"
  [[ $tests_failed == 0 && $tests_passed -gt 0 ]]
}

# timed PART COMMAND...: says at the end how long this part of the tests took. A build says so itself.
timed() {
  local part=$1 start=$SECONDS
  shift
  "$@"
  say "$part took $((SECONDS - start)) s, built and tested"
}

# Processes at a time: two more than cores, since tests that wait for a deadline leave theirs idle.
at_once() { echo "$(($(cores) + 2))"; }

# run_ctest PRESET [CTEST ARGS]: shows ctest's progress on a terminal, and only failures in a pipe.
run_ctest() {
  local preset=$1 total passed
  local report=$PWD/build/$preset/ctest.xml
  shift
  rm -f "$report"
  local command=(ctest --test-dir "build/$preset" --parallel "$(at_once)" --output-on-failure --no-tests=error
    --output-junit "$report" "$@")
  [[ $preset != tsan ]] || command=("${fixed_addresses[@]}" "${command[@]}")
  say "testing $preset"
  if [[ -t 1 ]]; then
    "${command[@]}" --progress || true
  else
    # Lines about passed tests and starts would only fill the log.
    "${command[@]}" | grep --line-buffered -Ev '^(Internal ctest|Test project )|(^ +Start +[0-9]+: )|( Passed +[0-9.]+ sec$)' || true
  fi
  # A test that did not run counts as failed.
  total=$(grep -c '<testcase ' "$report" || true)
  passed=$(grep -c 'status="run"' "$report" || true)
  if [[ ${total:-0} == 0 ]]; then
    say "error: no test ran in '$preset'"
    total=1 passed=0
  fi
  tests_passed=$((tests_passed + passed))
  tests_failed=$((tests_failed + total - passed))
}

# ThreadSanitizer's programs die at start if the address space is randomised more than its shadow memory allows. Some
# containers forbid the change; most of them do not need it.
fixed_addresses=()
! setarch -R true 2>/dev/null || fixed_addresses=(setarch -R)

# build_and_test PRESET TARGETS -- CTEST ARGS
build_and_test() {
  local preset=$1 targets=()
  shift
  while [[ $1 != -- ]]; do
    targets+=("$1")
    shift
  done
  shift
  if build "$preset" "${targets[@]}"; then
    run_ctest "$preset" "$@"
  else
    tests_failed=$((tests_failed + 1))
  fi
}

# All tests of the preset dev. A few processes run the cases of the two largest suites: ctest starts one for each case,
# which takes a seventh of all time. A test that did not run counts as failed, as in run_ctest.
test_cpu() {
  local gtest_seconds=900 gtest_skips_fail=1 gtest_reports=''
  if ! build dev; then
    tests_failed=$((tests_failed + 1))
    return
  fi
  run_ctest dev --label-exclude '^case$'
  # Tests make many tensors. If malloc gives no memory back to the system, there are a fifth fewer page faults.
  GLIBC_TUNABLES=glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=33554432 \
    run_shards cpu 16 "$(at_once)" build/dev/bin/weft-tests
  gtest_reports=build/dev/sim-reports
  run_shards sim 32 "$(at_once)" build/dev/bin/weft-sim-tests
  test_simulated
}

# Each test of the simulator has passed; together their executions must suffice.
test_simulated() {
  local numbers
  if numbers=$(python3 tools/reliability_tables.py --reports build/dev/sim-reports); then
    say "simulated: $numbers"
  else
    say 'error: the simulator ran less than the required minimum'
    tests_failed=$((tests_failed + 1))
  fi
}

# Tests of torch's operators, in an environment of its own that outlives the build folder, since torch has gigabytes.
torch_python=${WEFT_TORCH_PYTHON:-$HOME/.cache/weft/torch/bin/python}
test_torch() {
  local log=build/torch.log line
  if [[ ! -x $torch_python ]]; then
    say "torch's operators are not tested: there is no $torch_python (./dev torch makes it)"
    return
  fi
  say "testing torch's operators with torch $("$torch_python" -c 'import torch; print(torch.__version__)')" \
    "of $torch_python"
  PYTHONPATH=build/dev/site timeout --kill-after=10 900 "$torch_python" -B -m pytest -q -p no:cacheprovider \
    tests/python/torch_operators.py tests/python/torch_opcheck.py tests/python/torch_direct.py \
    tests/python/torch_groups.py tests/python/torch_layers.py tests/python/torch_payloads.py \
    tests/python/torch_documents.py tests/python/torch_examples.py >"$log" 2>&1 ||
    tail -n 40 "$log"
  line=$(tail -n 1 "$log")
  local passed failed
  passed=$(sed -nE 's/.*\b([0-9]+) passed.*/\1/p' <<<"$line")
  failed=$(sed -nE 's/.*\b([0-9]+) (failed|error).*/\1/p' <<<"$line")
  [[ -n $passed$failed ]] || failed=1
  tests_passed=$((tests_passed + ${passed:-0}))
  tests_failed=$((tests_failed + ${failed:-0}))
  # mypy is in the build's environment, and reads torch's types in the other one.
  if MYPYPATH=build/dev/site:tests/stubs/deep_gemm "$python_environment/bin/python" -B -m mypy --strict \
    --cache-dir build/dev/mypy --python-executable "$torch_python" build/dev/site/weft/torch/*.py \
    tests/python/torch_types.py examples/moe_*.py >"$log.types" 2>&1; then
    tests_passed=$((tests_passed + 1))
  else
    say "error: types of weft.torch"
    tail -n 40 "$log.types"
    tests_failed=$((tests_failed + 1))
  fi
}

# sanitize_cpu PRESET [CTEST ARGS]: builds and runs weft-tests. Without arguments for ctest a few processes run them all:
# under AddressSanitizer a process takes 75 ms to start.
sanitize_cpu() {
  local preset=$1 gtest_seconds=900 gtest_under=()
  shift
  if [[ $# -gt 0 ]]; then
    build_and_test "$preset" weft-tests -- "$@"
  elif build "$preset" weft-tests; then
    [[ $preset != tsan ]] || gtest_under=("${fixed_addresses[@]}")
    run_shards "$preset" 24 "$(at_once)" "build/$preset/bin/weft-tests"
  else
    tests_failed=$((tests_failed + 1))
  fi
}

test_sanitizers() {
  (
    # A report ends the test. Tests of killed ranks fork children of a process with threads.
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0
    # The rest saves a quarter of the time: fewer freed bytes are held back: 16 of 256 MiB, more than most tests take.
    # Stacks kept after a return are smaller (256 KiB), and reports show four callers of an allocation.
    export ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1
    ASAN_OPTIONS+=:quarantine_size_mb=16:max_uar_stack_size_log=18:malloc_context_size=4
    export UBSAN_OPTIONS=print_stacktrace=1
    tests_passed=0 tests_failed=0
    timed tsan sanitize_cpu tsan "$@"
    timed asan sanitize_cpu asan "$@"
    echo "$tests_passed $tests_failed" >build/sanitizers.count
  )
  local passed failed
  read -r passed failed <build/sanitizers.count
  tests_passed=$((tests_passed + passed))
  tests_failed=$((tests_failed + failed))
}

# Runs all targets side by side with a new seed in every run. A find stays in build/fuzz.
test_fuzz() {
  local target seed running=()
  build fuzz weft-fuzz || {
    tests_failed=$((tests_failed + 1))
    return
  }
  for target in tests/fuzz/corpus/*/; do
    target=$(basename "$target")
    seed=$((RANDOM * 32768 + RANDOM + 1))
    say "fuzzing $target with seed $seed"
    mkdir -p "build/fuzz/corpus/$target"
    WEFT_FUZZ_TARGET=$target build/fuzz/bin/weft-fuzz -seed=$seed -max_total_time="${WEFT_FUZZ_SECONDS:-30}" -timeout=20 \
      -rss_limit_mb=1024 -malloc_limit_mb=64 -max_len=8192 -artifact_prefix="build/fuzz/$target-" -print_final_stats=1 \
      "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1 &
    running+=("$! $target $seed")
  done
  local one process
  for one in "${running[@]}"; do
    read -r process target seed <<<"$one"
    if wait "$process"; then
      tests_passed=$((tests_passed + 1))
      say "fuzzed $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log") inputs"
    else
      tests_failed=$((tests_failed + 1))
      say "error: fuzzing $target with seed $seed; the log is build/fuzz/$target.log, its end:"
      tail -n 30 "build/fuzz/$target.log" >&2
    fi
  done
}

# with_nccl COMMAND...: runs the command. Unless WEFT_NCCL names an NCCL, LD_LIBRARY_PATH leads it to one of the usual
# folders: the loader may know none, or a version that is too old. Without any, the command says so if it needs one.
with_nccl() {
  local dir
  if [[ -z ${WEFT_NCCL-} ]] && dir=$(nccl_dir); then
    LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
  else
    "$@"
  fi
}

nccl_dir() {
  local dir
  for dir in ${NCCL_ROOT:+"$NCCL_ROOT/lib"} \
    "$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib")' 2>/dev/null)" \
    /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/lib/x86_64-linux-gnu; do
    [[ -n $dir && -e $dir/libnccl.so.2 ]] && echo "$dir" && return
  done
  return 1
}

# Of GoogleTest's output: what cases say, or, if gtest_quiet is set, what only those say that fail, are skipped or do not
# end.
gtest_quiet=
show_gtest() {
  local all='{print; fflush()}'
  # shellcheck disable=SC2016  # awk's variables
  [[ -z $gtest_quiet ]] || all='
    function show() {for (i = 0; i < n; ++i) print lines[i]; n = 0; fflush()}
    /^\[ RUN      \]/ || /^\[       OK \]/ {n = 0}
    {lines[n++] = $0}
    /^\[  (FAILED |SKIPPED) +\] .* ms\)$/ {show()}
    END {show()}'
  awk "$all" | grep --line-buffered -Ev '^\[ (RUN     |      OK) |^\[(-----|=====|  PASSED)|^Note: |^$'
}

# run_gtest EXECUTABLE [ARGS]: one process for the whole suite, since creating a CUDA context for each case takes longer
# than most cases. A case that started and did not end well counts as failed, so a crash is counted, too. `gtest_under`
# is a command that runs the executable, `gtest_seconds` its time limit, and `gtest_log` its log. A report goes into the
# folder `gtest_reports`, if one is named. Skipped cases count as failed if `gtest_skips_fail` is set.
gtest_under=()
gtest_seconds=400
gtest_log=
gtest_reports=
gtest_skips_fail=
run_gtest() {
  local name log started passed skipped
  name=$(basename "$1")
  log=${gtest_log:-build/$name.log}
  mkdir -p build
  say "running $name${GTEST_SHARD_INDEX:+, $(basename "$log" .log)}"
  [[ -z $gtest_reports ]] || set -- "$@" "--gtest_output=xml:$gtest_reports/$(basename "$log" .log).xml"
  with_nccl timeout --kill-after=10 "$gtest_seconds" "${gtest_under[@]}" "$@" 2>&1 | tee "$log" | show_gtest || true
  started=$(grep -c '^\[ RUN      \]' "$log" || true)
  passed=$(grep -c '^\[       OK \]' "$log" || true)
  skipped=$(grep -c '^\[  SKIPPED \] .* ms)$' "$log" || true)  # the test has printed the reason
  [[ -z $gtest_skips_fail ]] || skipped=0
  if [[ $started == 0 ]]; then
    say "error: no test ran in $name"
    started=1
  elif ! grep -q '^\[==========\] .* ran\.' "$log"; then
    say "error: $name ended before its last test; the log is $log"
  fi
  tests_passed=$((tests_passed + passed))
  tests_failed=$((tests_failed + started - passed - skipped))
}

# run_shards NAME SHARDS AT_ONCE EXECUTABLE [ARGS]: run_gtest in so many processes, each with its share of the cases.
# (`builtin jobs` in a substitution would name none: bash hands the list down to the bare word alone.)
# `shard_gpus`: the number of GPUs, if processes count them from different ones.
shard_gpus=
run_shards() {
  local name=$1 shards=$2 at_once=$3 shard passed failed
  shift 3
  rm -f build/"$name"-shard-*.count
  for ((shard = 0; shard < shards; ++shard)); do
    while [[ $(jobs -rp | wc -l) -ge $at_once ]]; do wait -n || true; done
    (
      export GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard
      [[ -z $shard_gpus ]] || CUDA_VISIBLE_DEVICES=$(gpus_from $((shard * shard_gpus / shards)) "$shard_gpus")
      [[ -z $shard_gpus ]] || export CUDA_VISIBLE_DEVICES
      tests_passed=0 tests_failed=0 gtest_quiet=1 gtest_log=build/$name-shard-$shard.log
      run_gtest "$@"
      echo "$tests_passed $tests_failed" >"build/$name-shard-$shard.count"
    ) &
  done
  wait
  for ((shard = 0; shard < shards; ++shard)); do
    [[ -f build/$name-shard-$shard.count ]] || echo "0 1" >"build/$name-shard-$shard.count"  # it has died
    read -r passed failed <"build/$name-shard-$shard.count"
    tests_passed=$((tests_passed + passed))
    tests_failed=$((tests_failed + failed))
  done
  cat build/"$name"-shard-*.log >"build/$name.log"
}

run_tests() {
  local fast='' gpu='' bin='' changed='' names='' base='' filter='' sanitize='' tool='' part='' parts=8 side_by_side=1
  while [[ $# -gt 0 ]]; do
    case $1 in
      --fast) fast=1 ;;
      --gpu) gpu=1 ;;
      --changed)
        changed=1
        [[ ${2--} == -* ]] || { base=$2 && shift; }
        ;;
      --sanitize) sanitize=1 ;;
      --tool) tool=${2:?--tool needs memcheck, initcheck or racecheck} && shift ;;
      --part) IFS=/ read -r part parts <<<"${2:?--part needs K/N}" && shift ;;
      --side-by-side) side_by_side=${2:?--side-by-side needs a number of parts} && shift ;;
      --prebuilt) bin=${2:?--prebuilt needs a folder} && shift ;;
      --filter) filter=${2:?--filter needs an expression} && shift ;;
      *) die "unknown option '$1' of ./dev test; ./dev --help lists them" ;;
    esac
    shift
  done
  [[ $part =~ ^[0-9]*$ && $parts =~ ^[1-9][0-9]*$ && ${part:-1} -ge 1 && ${part:-1} -le $parts ]] ||
    die "--part $part/$parts: wanted K/N, K from 1 to N"
  [[ $side_by_side =~ ^[1-9][0-9]*$ ]] || die "--side-by-side $side_by_side: wanted a number of parts from 1 on"
  [[ $tool =~ ^(memcheck|initcheck|racecheck|)$ ]] || die "--tool $tool: wanted memcheck, initcheck or racecheck"
  [[ -n $sanitize || -z $tool$part ]] || die "--tool and --part go with --sanitize"
  if [[ -n $gpu ]]; then
    test_gpu "$bin" "$filter" "${sanitize:+${tool:-memcheck racecheck}}" "$part" "$parts" "$side_by_side"
    return
  fi
  [[ -z $bin$sanitize ]] || die "--prebuilt and --sanitize go with --gpu"

  local select=()
  need build
  if [[ -n $changed ]]; then
    [[ -z $filter ]] || die "--changed has a filter of its own"
    fast=1
    # shellcheck disable=SC2086  # no base: no argument
    names=$(python3 tools/changed.py $base) || exit
    filter=$(sed -n 2p <<<"$names")
    [[ -n $filter ]] || { say "no tests: only documents have changed" && return; }
    [[ $filter != . ]] || { filter='' changed='' && say "all tests: a file has changed that several families use"; }
  fi
  [[ -z $filter ]] || select=(--tests-regex "$filter")
  [[ -n $fast ]] || need sanitize
  rm -rf build/dev/sim-reports
  # Schedules that no run has had. A user who repeats a run sets the variable.
  export WEFT_SIM_SEED=${WEFT_SIM_SEED:-$(((RANDOM << 15 | RANDOM) + 1))}
  say "the simulator's schedules: WEFT_SIM_SEED=$WEFT_SIM_SEED"
  if [[ -n $changed ]]; then
    timed changed test_changed "$names"
    finish_tests
    return
  fi
  need_python || tests_failed=$((tests_failed + 1))
  if [[ -n $filter ]]; then
    build_and_test dev -- "${select[@]}"
  else
    timed dev test_cpu
    test_torch
    test_nccl_headers
    test_cutlass
  fi
  if has_gpu && [[ -z $filter && -x build/dev/bin/weft-gpu-tests ]]; then
    run_gtest build/dev/bin/weft-gpu-tests
  fi
  [[ -n $fast ]] || test_sanitizers "${select[@]}"
  [[ -n $fast || -n $filter ]] || timed fuzz test_fuzz
  finish_tests
}

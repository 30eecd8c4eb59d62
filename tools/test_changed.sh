# shellcheck shell=bash
# Sourced by ./dev: runs the tests of the families whose files have changed (./dev test --changed).

# The build folder has neither CUDA nor the program's simulator, which no such test needs, and kernels that compile
# quickly. NAMES is what tools/changed.py prints.
test_changed() {
  local names=$1 targets files expression executable
  # shellcheck disable=SC2034  # run_gtest reads them
  local gtest_seconds=900 gtest_skips_fail=1
  local -x WEFT_QUICK_KERNELS=ON
  read -ra targets < <(sed -n 1p <<<"$names")
  expression=$(sed -n 2p <<<"$names")
  read -ra files < <(sed -n 3p <<<"$names") || true  # none
  if ! build quick "${targets[@]}"; then
    tests_failed=$((tests_failed + 1))
    return
  fi
  run_ctest quick --label-exclude '^case$' --tests-regex '^lint_'
  for executable in weft-tests weft-sim-tests; do run_cases "build/quick/bin/$executable" "$expression"; done
  [[ ${#files[@]} == 0 ]] || test_host_mutants "${files[@]}"
}

# run_cases EXECUTABLE REGEX: a few processes run the cases that the expression finds.
run_cases() {
  local list=build/changed-cases.txt count
  with_nccl "$1" --gtest_list_tests | python3 tools/changed.py --cases "$2" >"$list"
  [[ -s $list ]] || return 0
  count=$(($(tr -cd : <"$list" | wc -c) + 1))
  run_shards "changed-$(basename "$1")" "$((count < 16 ? count : 16))" "$(at_once)" "$1" "--gtest_flagfile=$list"
}

# test_host_mutants FILES: the bugs that are seeded in these files of src.
test_host_mutants() {
  if python3 tests/mutants/run.py --table tests/mutants/host.json --files "$@" -- build/quick/bin/weft-mutant-tests; then
    tests_passed=$((tests_passed + 1))
  else
    tests_failed=$((tests_failed + 1))
  fi
}

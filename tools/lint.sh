# shellcheck shell=bash
# Sourced by ./dev: formatting and checks.

# Files of the checkout, new ones included: project_files PATTERN...
project_files() { git ls-files --cached --others --exclude-standard --deduplicate -- "$@" | while read -r f; do
  [[ ! -f $f ]] || echo "$f"
done; }

# Versions of clang-format disagree; version 14 counts.
format_files() {
  local tool=clang-format-14
  command -v $tool >/dev/null || tool=clang-format
  project_files '*.hpp' '*.cpp' '*.cu' '*.cuh' '*.h' '*.c' | xargs -r "$tool" "$@"
}

tidy_files() {
  # The compilation database has the flags of each file. A build that joins files does not have them. nvcc checks CUDA
  # files.
  cmake --preset dev -B build/tidy -D CMAKE_UNITY_BUILD=OFF >/dev/null || return 1
  # One file needs a generated header.
  cmake --build build/tidy --target weft_build_info >/dev/null || return 1
  project_files 'src/**.cpp' 'apps/**.cpp' 'oracle/**.cpp' | xargs -r -n 1 -P "$(cores)" clang-tidy -p build/tidy --quiet --extra-arg=-Wno-unknown-warning-option 2> >(
    grep -Ev 'warnings? generated|Suppressed|Use -header-filter' >&2
  )
}

lint_passed=0
lint_failed=0

check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    lint_passed=$((lint_passed + 1))
    say "$name: ok ($((SECONDS - start)) s)"
  else
    lint_failed=$((lint_failed + 1))
    say "$name: FAILED ($((SECONDS - start)) s)"
  fi
}

run_lint() {
  [[ ${1-} == '' || $1 == --fast ]] || die "unknown option '$1' of ./dev lint"
  need build lint
  check 'format (./dev format mends it)' format_files --dry-run -Werror
  check 'project rules' python3 tools/lint.py
  check 'sentences' python3 tools/prose.py
  local program=()
  [[ ! -x build/dev/bin/weft ]] || program=(--weft build/dev/bin/weft)
  check "the simulator's numbers" python3 tools/reliability_tables.py --check "${program[@]}"
  check 'tables of results (python3 tools/result_tables.py mends them)' python3 tools/result_tables.py --check
  check shellcheck shellcheck -x dev .ci/run
  [[ ${1-} == --fast ]] || check clang-tidy tidy_files
  echo "$lint_passed passed, $lint_failed failed"
  [[ $lint_failed == 0 ]]
}

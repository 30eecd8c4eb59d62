# shellcheck shell=bash
# Sourced by ./dev: compiles callers of other libraries, whose headers lie in a cache that outlives the build folder.

# Compiles the callers of NCCL with the headers of versions that are met at run time.
nccl_headers=$HOME/.cache/weft/nccl
nccl_versions='2.29.7 2.30.7'
test_nccl_headers() {
  local version folder
  [[ -e build/dev/bin/stubs ]] || return 0  # without CUDA there is nothing to compile
  for version in $nccl_versions; do
    folder=$nccl_headers/$version/nvidia/nccl/include
    if [[ ! -e $folder/nccl.h ]]; then
      say "nothing is compiled with the headers of NCCL $version: there is no $folder (./dev nccl-headers makes it)"
    elif python3 -B tests/stubs/check_headers.py --commands build/dev/compile_commands.json "$folder"; then
      tests_passed=$((tests_passed + 1))
    else
      tests_failed=$((tests_failed + 1))
    fi
  done
}

# Compiles a GEMM of CUTLASS of each type, up to PTX, since nothing here runs it and an instance takes half a minute. In a
# build of its own: the program of other tests has none.
cutlass_version=4.2.0.0
cutlass_folder=$HOME/.cache/weft/cutlass/$cutlass_version
test_cutlass() {
  local sources=$cutlass_folder/cutlass_library/source log=build/cutlass.log start=$SECONDS
  [[ -e build/dev/bin/stubs ]] || return 0  # without CUDA there is nothing to compile
  if [[ ! -e $sources/include/cutlass/cutlass.h ]]; then
    say "no GEMM of CUTLASS is compiled: there is no $sources (./dev cutlass makes it)"
    return
  fi
  if cmake --preset dev -B build/cutlass -D WEFT_CUTLASS="$sources" -D WEFT_PYTHON=OFF -D WEFT_TESTS=OFF \
    -D WEFT_BENCH=OFF >"$log" 2>&1 && cmake --build build/cutlass --target weft-cutlass-ptx >>"$log" 2>&1; then
    say "GEMMs of fp8 and of bf16 compile with CUTLASS $cutlass_version of $cutlass_folder, in $((SECONDS - start)) s"
    tests_passed=$((tests_passed + 1))
  else
    say "error: GEMMs of CUTLASS $cutlass_version do not compile; the log is $log, its end:"
    tail -n 30 "$log" >&2
    tests_failed=$((tests_failed + 1))
  fi
}

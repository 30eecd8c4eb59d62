# shellcheck shell=bash
# Sourced by ./dev: configuring and building.

cores() { echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"; }

# configure PRESET: quiet unless it fails; the build's own lines ("Weft: ...") are shown. WEFT_QUICK_KERNELS=ON compiles
# kernels quickly, for machines that measure nothing: those of GPUs in a quarter of the time. It holds for this build alone.
configure() {
  local log=build/$1.configure.log
  mkdir -p build
  if ! cmake --preset "$1" -D WEFT_QUICK_KERNELS="${WEFT_QUICK_KERNELS:-OFF}" >"$log" 2>&1; then
    cat "$log" >&2
    say "error: configuring '$1' failed"
    return 1
  fi
  # On the first run, or after a change, print the contents of this build.
  grep -o 'Weft: .*' "$log" >&2 || true
}

# build PRESET [TARGETS]: shows ninja's progress line on a terminal, and only failures in a pipe.
build() {
  local preset=$1
  shift
  configure "$preset" || return 1
  local quiet=(--quiet) targets=() start=$SECONDS
  [[ ! -t 1 ]] || quiet=()
  [[ $# == 0 ]] || targets=(--target "$@")
  say "building $preset${*:+ ($*)}"
  cmake --build --preset "$preset" --parallel "$(cores)" "${targets[@]}" -- "${quiet[@]}" || {
    say "error: building '$preset' failed"
    return 1
  }
  say "built $preset in $((SECONDS - start)) s"
}

# has_target PRESET TARGET: targets exist only where their folder has files.
has_target() { ninja -C "build/$1" -t query "$2" >/dev/null 2>&1; }

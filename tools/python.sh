# shellcheck shell=bash
# Sourced by ./dev: a virtual environment in the build folder, with what the Python package needs (tools/python.txt).

python_environment=build/python

# need_python: makes the environment, or brings it up to date.
need_python() {
  local log=build/python.log stamp=$python_environment/installed
  [[ ! -f $stamp || tools/python.txt -nt $stamp ]] || return 0
  say "installing: what the Python package needs"
  mkdir -p build
  {
    python3 -m venv "$python_environment" &&
      "$python_environment/bin/python" -m pip install --quiet --disable-pip-version-check --requirement tools/python.txt
  } >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    say "error: without the Python package, as pip could not install tools/python.txt. The full log is $log"
    rm -rf "$python_environment"
    return 1
  }
  touch "$stamp"
}

# The environment of test_torch (tools/test.sh).
install_torch() {
  local folder
  folder=$(dirname "$(dirname "$torch_python")")
  say "installing torch into $folder"
  python3 -m venv "$folder" &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.11.0 numpy pytest \
      'nanobind-backend>=1.0,<2'
}

# The headers of test_nccl_headers (tools/test.sh), out of the packages that have them.
load_nccl_headers() {
  local folder=$nccl_headers version wheels
  for version in $nccl_versions; do
    [[ ! -e $folder/$version/nvidia/nccl/include/nccl.h ]] || continue
    wheels=$(mktemp -d)
    say "loading the headers of NCCL $version into $folder"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" "nvidia-nccl-cu13==$version" &&
      python3 -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if "/include/" in name])' \
        "$wheels"/*.whl "$folder/$version" || die "no headers of NCCL $version"
    rm -r "$wheels"
  done
}

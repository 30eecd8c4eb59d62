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

# load_files PACKAGE==VERSION FOLDER RE: the package's files whose names have a match of RE, unless the folder is there.
load_files() {
  local wheels
  [[ ! -e $2 ]] || return 0
  wheels=$(mktemp -d)
  say "loading files of $1 into $2"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" "$1" &&
    python3 -c 'import os, re, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2] + ".part", [name for name in wheel.namelist() if re.search(sys.argv[3], name)])
os.rename(sys.argv[2] + ".part", sys.argv[2])' "$wheels"/*.whl "$2" "$3" || die "no files of $1"
  rm -r "$wheels"
}

# The headers of test_nccl_headers (tools/test_headers.sh).
load_nccl_headers() {
  local version
  for version in $nccl_versions; do
    load_files "nvidia-nccl-cu13==$version" "$nccl_headers/$version" /include/
  done
}

# The sources of test_cutlass, likewise.
load_cutlass() { load_files "nvidia-cutlass==$cutlass_version" "$cutlass_folder" '/source/(include|tools/util/include)/'; }

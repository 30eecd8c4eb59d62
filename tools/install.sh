# shellcheck shell=bash
# Sourced by ./dev: installs the packages that a command needs and this machine lacks (tools/packages.txt).

# probe_found PROBE: a command on PATH, or a file (glob).
probe_found() {
  case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# missing_packages GROUP...: one line per missing thing, "first-name other-name ...".
missing_packages() {
  local group probe names
  while read -r group probe names; do
    [[ " $* " == *" $group "* ]] || continue
    probe_found "$probe" || echo "$names"
  done < <(grep -Ev '^[[:space:]]*(#|$)' tools/packages.txt)
}

# first_known NAME...: the first package that apt can install.
first_known() {
  local name
  for name in "$@"; do
    if apt-cache show --no-all-versions "$name" >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  echo "$1"
}

# need GROUP...: installs the missing packages of these groups, or prints what to install and stops.
need() {
  local missing name
  missing=$(missing_packages "$@")
  [[ -n $missing ]] || return 0

  local wanted
  wanted=$(cut -d' ' -f1 <<<"$missing" | paste -sd' ')
  command -v apt-get >/dev/null ||
    die "missing: $wanted (Debian's names), and there is no apt-get here. Install them and try again."

  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "missing: $wanted. Run as root: apt-get install $wanted"
    as_root=(sudo)
    [[ -t 0 ]] || as_root=(sudo -n)
    "${as_root[@]}" true || die "missing: $wanted, and sudo refused. Run as root: apt-get install $wanted"
  fi

  say "installing: $wanted"
  local log=build/apt.log
  mkdir -p build
  "${as_root[@]}" apt-get update -qq >"$log" 2>&1 ||
    say "apt-get update failed (offline?); trying the package lists of this machine"

  local packages=() names
  while read -r -a names; do
    packages+=("$(first_known "${names[@]}")")
  done <<<"$missing"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >>"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    die "apt-get could not install: ${packages[*]}. Is this machine online? The full log is $log"
  }

  # These packages are only a comfort, so a failure does not stop the installation.
  for name in $(missing_packages optional | cut -d' ' -f1); do
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "$name" >>"$log" 2>&1 || say "went on without $name"
  done
}

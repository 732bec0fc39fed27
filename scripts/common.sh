# SPDX-License-Identifier: Apache-2.0
#
# What demo, test and .ci/run share. Sourced with `set -euo pipefail` in force, in the repository's
# root. A build that was interrupted goes on where it stopped.

# Compilers that may run at once: one a core, and 1.5 GiB of memory for each.
build_jobs() {
  local cores memory_kib jobs
  cores=$(nproc)
  memory_kib=$(awk '/^MemTotal:/ {print $2}' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max ]]; then
    local limit
    limit=$(< /sys/fs/cgroup/memory.max)
    if [[ $limit != max ]] && (( limit / 1024 < memory_kib )); then
      memory_kib=$(( limit / 1024 ))
    fi
  fi
  jobs=$(( memory_kib / (1536 * 1024) ))
  (( jobs < 1 )) && jobs=1
  (( jobs > cores )) && jobs=$cores
  echo "$jobs"
}

# build PRESET TARGET [cmake arguments …]: configures build/PRESET and builds TARGET ("all": all).
build() {
  local preset=$1 target=$2
  shift 2
  if [[ -z ${CMAKE_CXX_COMPILER_LAUNCHER:-} ]] && command -v ccache > /dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  # Into a file and out again when it fails: its checks of the compiler are no news.
  mkdir -p build
  if ! cmake --preset "$preset" "$@" > "build/configure-$preset.log" 2>&1; then
    cat "build/configure-$preset.log" >&2
    return 1
  fi
  local quiet=()
  [[ -t 1 ]] || quiet=(-- --quiet)
  cmake --build "build/$preset" --target "$target" --parallel "$(build_jobs)" "${quiet[@]}"
}

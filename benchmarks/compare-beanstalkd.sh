#!/bin/sh
# Measures Windlass and beanstalkd side by side in one run and writes the figures to benchmarks/results/.
#
#   benchmarks/compare-beanstalkd.sh                 everything, three rounds, about 15 minutes
#   benchmarks/compare-beanstalkd.sh --rounds 1      the same, once
#   benchmarks/compare-beanstalkd.sh --workload W3   only some of it; every option of windlass-bench may be given
#
# All servers listen on loopback ports of their own, keep their data in temporary folders under target/bench (the disk
# that is measured; BENCH_FOLDER chooses another) and are gone at the end. NAME=… names the result files.
set -eu

cd "$(dirname "$0")/.."
if ! command -v beanstalkd >/dev/null; then
    echo "beanstalkd is not installed; on Debian: apt-get install beanstalkd" >&2
    exit 1
fi

target=${CARGO_TARGET_DIR:-target}
if [ -z "${WINDLASS:-}" ]; then
    cargo build --release --quiet -p windlass
    WINDLASS=$target/release/windlass
fi
cargo build --release --quiet -p windlass-bench
export WINDLASS
folder=${BENCH_FOLDER:-target/bench}
mkdir -p "$folder" benchmarks/results
# The folders of a run that was interrupted.
trap 'rm -rf "$folder"/windlass-bench-*' EXIT INT TERM

# Other work on the machine bends the figures, not evenly: say so rather than print nonsense.
load=$(cut -d' ' -f1 /proc/loadavg)
if [ "${load%.*}" -ge 1 ]; then
    echo "warning: the load average is $load before the run; wait until the machine is quiet for figures that count" >&2
fi

save=benchmarks/results/${NAME:-$(date +%Y-%m-%d)}
timeout "${BENCH_TIMEOUT:-3600}" "$target/release/windlass-bench" --peer beanstalkd --rounds 3 --folder "$folder" --save "$save" "$@"
{
    echo
    echo "Machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f", $2 / 1048576}' /proc/meminfo) GB," \
        "Linux $(uname -r), $(beanstalkd -v), load average $load before the run."
    echo
    echo "Command: \`benchmarks/compare-beanstalkd.sh $*\`"
} >>"$save.md"
echo "written: $save.json $save.md" >&2

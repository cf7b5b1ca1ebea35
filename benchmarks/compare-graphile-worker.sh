#!/usr/bin/env bash
# Measures Windlass on PostgreSQL and graphile-worker side by side, on one PostgreSQL in one run, and writes the figures to
# benchmarks/results/.
#
#   benchmarks/compare-graphile-worker.sh                  three rounds and a million waiting jobs, about 15 minutes
#   ROUNDS=1 DRAIN=20000 PUSH=4000 WAITING=50000 benchmarks/compare-graphile-worker.sh    a short look
#
# PostgreSQL runs with its usual, safe settings on a free loopback port, in a temporary folder (PG_FOLDER chooses where: the
# disk that is measured) and is gone at the end. graphile-worker comes from npm into target/graphile-worker. NAME=… names
# the result files, SECONDS_MAX=… bounds one measurement of Windlass.
set -euo pipefail
cd "$(dirname "$0")/.."

need() { command -v "$1" >/dev/null || { echo "$1 is not installed; on Debian: apt-get install $2" >&2; exit 1; }; }
need node nodejs
need npm npm
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1 || true)
[ -n "$bin" ] || bin=$(dirname "$(command -v postgres || echo /none/postgres)")
[ -x "$bin/initdb" ] || { echo "PostgreSQL is not installed; on Debian: apt-get install postgresql" >&2; exit 1; }

target=${CARGO_TARGET_DIR:-target}
if [ -z "${WINDLASS:-}" ]; then
    cargo build --release --quiet -p windlass
    WINDLASS=$target/release/windlass
fi
cargo build --release --quiet -p windlass-bench
export WINDLASS
export MODULES=${MODULES:-$PWD/target/graphile-worker}
if [ ! -d "$MODULES/node_modules/graphile-worker" ]; then
    mkdir -p "$MODULES"
    cp benchmarks/graphile-worker/package.json "$MODULES/"
    npm install --prefix "$MODULES" --no-audit --no-fund --silent
fi

# It refuses to run as root.
as_postgres() { if [ "$(id -u)" -eq 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi; }
folder=$(mktemp -d "${PG_FOLDER:-${TMPDIR:-/tmp}}/windlass-bench-pg-XXXXXX")
results=$(mktemp -d)
[ "$(id -u)" -ne 0 ] || chown postgres "$folder"
started=
finish() {
    [ -z "$started" ] || (cd / && as_postgres "$bin/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1) || true
    rm -rf "$folder" "$results"
}
trap finish EXIT INT TERM
port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })')
(cd / && as_postgres "$bin/initdb" -U postgres --auth=trust --encoding=UTF8 --locale=C.UTF-8 -D "$folder/data" >/dev/null)
# The same for both: what a machine of this size is usually given. Nothing is taken from its safety.
as_postgres tee -a "$folder/data/postgresql.conf" >/dev/null <<CONF
shared_buffers = 1GB
max_wal_size = 4GB
max_connections = 200
unix_socket_directories = '$folder'
CONF
(cd / && as_postgres "$bin/pg_ctl" -D "$folder/data" -w -l "$folder/log" \
    -o "-p $port -c listen_addresses=127.0.0.1" start >/dev/null)
started=yes
url=postgres://postgres@127.0.0.1:$port
"$bin/psql" -q -d "$url/postgres" -c 'CREATE DATABASE windlass' -c 'CREATE DATABASE graphile'

load=$(cut -d' ' -f1 /proc/loadavg)
if [ "${load%.*}" -ge 1 ]; then
    echo "warning: the load average is $load before the run; wait until the machine is quiet for figures that count" >&2
fi

drive() { node benchmarks/graphile-worker/drive.mjs "$@"; }
# A disk that stands still for seconds, as on a machine with other work, fails a call: measured again, up to three times.
bench() {
    for try in 1 2 3; do
        timeout "${BENCH_TIMEOUT:-1800}" "$target/release/windlass-bench" --store "$url/windlass" --seconds "${SECONDS_MAX:-20}" --json "$@" && return
        echo "measurement $try failed" >&2
    done
    return 1
}
for round in $(seq "${ROUNDS:-3}"); do
    echo "round $round: windlass" >&2
    bench --workload W2 --connections 16 --jobs "${PUSH:-30000}" >"$results/windlass-push-$round.json"
    bench --workload W4 --jobs "${DRAIN:-200000}" >"$results/windlass-drain-$round.json"
    echo "round $round: graphile-worker" >&2
    drive push "$url/graphile" "${PUSH:-30000}" >"$results/graphile-push-$round.json"
    drive drain "$url/graphile" "${DRAIN:-200000}" >"$results/graphile-drain-$round.json"
done
echo "flat cost" >&2
bench --workload W7 --jobs "${WAITING:-1000000}" >"$results/windlass-flat-1.json"

mkdir -p benchmarks/results
save=benchmarks/results/${NAME:-graphile-worker-$(date +%Y-%m-%d)}
node benchmarks/graphile-worker/report.mjs "$results" "$save"
{
    echo
    echo "Machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f", $2 / 1048576}' /proc/meminfo) GB," \
        "Linux $(uname -r), $("$bin/postgres" --version), node $(node --version)," \
        "graphile-worker $(node -p "require('$MODULES/node_modules/graphile-worker/package.json').version")," \
        "load average $load before the run, $(cut -d' ' -f1 /proc/loadavg) after it."
    echo
    echo "Command: \`ROUNDS=${ROUNDS:-3} PUSH=${PUSH:-30000} DRAIN=${DRAIN:-200000} WAITING=${WAITING:-1000000}" \
        "benchmarks/compare-graphile-worker.sh\`"
} >>"$save.md"
cat "$save.md"
echo "written: $save.json $save.md" >&2

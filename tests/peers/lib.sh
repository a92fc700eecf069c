# Sourced by the build scripts of the peers. Each is a small Go module that requires a peer in one version. Programs are kept in
# ${XDG_CACHE_HOME:-~/.cache}/keelet/peers/NAME-VERSION: a machine that has them needs no Go.
#
# When a build script fails, the last line on standard error is the reason.

export CGO_ENABLED=0 GOFLAGS=-buildvcs=false

# peer_cache NAME MODULE: sets `version` to the one that go.mod requires, and `peers` to the directory for it.
peer_cache() {
    version=$(sed -nE "s|^require $2 (v[0-9.]+)\$|\1|p" go.mod)
    peers=${KEELET_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/keelet/peers}/$1-$version
    mkdir -p "$peers"
}

# Whether this machine has a Go that can build this module. Debian's is installed if there is none and it is new enough.
peer_go() {
    [ -z "${peer_go_checked:-}" ] || return 0
    local wanted found
    wanted=$(sed -nE 's/^go ([0-9.]+)$/\1/p' go.mod)
    if ! command -v go >/dev/null; then
        if ! command -v apt-cache >/dev/null; then
            echo "Go $wanted is needed to build $(basename "$PWD"), and there is none" >&2
            return 1
        fi
        # Debian's versions are 2:1.26~1 and the like. From 1.21 on, Go downloads a newer one of itself, unless told not to.
        found=$(apt-cache policy golang-go | sed -nE 's/^ *Candidate: ([0-9]+:)?([0-9.]+).*/\2/p')
        if [ -z "$found" ] || older "$found" 1.21; then
            echo "Go $wanted is needed to build $(basename "$PWD"); there is none, and Debian's golang-go is ${found:-not available}" >&2
            return 1
        fi
        ../../../scripts/packages golang-go >&2 || return 1
    fi
    # In the directory of a module this is the version that builds it: Go switches to a newer one where it may.
    if ! found=$(go env GOVERSION 2>&1) || older "${found#go}" "$wanted"; then
        # Go's last line names both versions and the setting that forbids to download a newer one.
        echo "Go $wanted is needed to build $(basename "$PWD"): $(tail -n 1 <<<"$found")" >&2
        return 1
    fi
    peer_go_checked=yes
}

older() {
    [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# peer_build TARGET PACKAGE LDFLAGS COMMAND...: builds a program unless it is there. What is there is whole, because it is built
# beside its place and renamed. Of several scripts that want it one builds, and the others wait.
peer_build() {
    local target=$1 package=$2 ldflags=$3 name log status=0 begun=$SECONDS
    shift 3
    [ ! -x "$target" ] || return 0
    peer_go || return 1
    name=$(basename "$target")
    mkdir -p "$(dirname "$target")"
    exec 9>>"$peers/.lock"
    if ! flock --nonblock 9; then
        echo "$name: another build is running, waiting for it" >&2
        flock 9
    fi
    # With the lock held, what other builds left is not in use.
    rm -rf "$peers"/.building.*
    if [ ! -x "$target" ]; then
        scratch=$(mktemp -d "$peers/.building.XXXXXX")
        trap 'rm -rf "$scratch"' EXIT
        log=$scratch/log
        # Go itself must not inherit the lock: a build that is killed leaves compilers that keep running for a moment.
        {
            go "$@" -v -trimpath -ldflags "-s -w $ldflags" -o "$scratch/$name" "$package" 9>&- 2>&1 | peer_progress "$name" "$log" 9>&-
        } || status=$?
        if [ "$status" -eq 0 ] && ! mv "$scratch/$name" "$target"; then
            status=1
        fi
        if [ "$status" -eq 0 ]; then
            echo "$name: built in $((SECONDS - begun)) s" >&2
        else
            # Without the names of packages that were compiled.
            grep -vE '^[a-zA-Z0-9./_-]+$' "$log" | tail -n 10 >&2 || true
            echo "$name $version cannot be built: $(tail -n 1 "$log")" >&2
        fi
        rm -rf "$scratch"
    fi
    exec 9>&-
    return "$status"
}

# Copies Go's output to a log, and reports every 15 s how many packages were compiled.
peer_progress() {
    local name=$1 log=$2 line packages=0 next=$((SECONDS + 15)) begun=$SECONDS
    echo "$name: building ..." >&2
    while :; do
        if IFS= read -r -t 5 line; then
            echo "$line" >>"$log"
            [[ $line = go:* ]] || packages=$((packages + 1))
        elif [ $? -le 128 ]; then
            break
        fi
        if [ "$SECONDS" -ge "$next" ]; then
            # `go test -c` does not print packages.
            echo "$name: $([ "$packages" -eq 0 ] || echo "$packages packages compiled, ")$((SECONDS - begun)) s" >&2
            next=$((SECONDS + 15))
        fi
    done
}

# bed.sh outside COMMAND [ARGUMENT...]: runs a command in an environment that looks like a separate machine to a node agent.
#
# Mounts, network, PIDs and cgroups are private, all files are on a tmpfs, and nothing outlives the command. It needs
# root, bash, coreutils, util-linux and perl, which every Debian has. The command gets this environment:
#
#   KEELET_NODE_DIR   an empty directory
set -euo pipefail

skip() {
    echo "skipped: $1"
    exit 77
}

# The cgroup hierarchies of this machine: where each is mounted, its type, its options.
hierarchies() {
    findmnt --raw --noheadings --types cgroup,cgroup2 --output TARGET,FSTYPE,FS-OPTIONS | grep '^/sys/fs/cgroup' || true
}

# === Outside: cgroups and namespaces, and their cleanup ===

outside() {
    bed=$(mktemp -d -t keelet-node.XXXXXX)
    name=${bed##*/}
    mapfile -t points < <(hierarchies | cut -d ' ' -f 1)
    namespaces=
    leave() {
        trap '' INT TERM
        # The reader of this shell's output may have exited, and a write to a closed pipe would kill the shell.
        exec &>/dev/null
        # PID 1 inside dies with this process, and all others with PID 1. The kernel takes a moment to reap them.
        [ -z "$namespaces" ] || kill -KILL "$namespaces" 2>/dev/null || true
        for _ in {1..100}; do
            left=
            for point in "${points[@]}"; do
                [ ! -d "$point/$name" ] || find "$point/$name" -depth -type d -exec rmdir {} + 2>/dev/null || left=yes
            done
            [ -n "$left" ] || break
            sleep 0.05
        done
        rm -rf "$bed"
    }
    trap leave EXIT
    trap 'exit 130' INT TERM
    for point in "${points[@]}"; do
        mkdir "$point/$name" 2>/dev/null || skip "no cgroup can be made below $point"
        # A new cpuset is empty, and no process can join it before it has processors and memory nodes.
        for given in cpuset.cpus cpuset.mems; do
            if [ -e "$point/$given" ] && [ -z "$(cat "$point/$name/$given")" ]; then
                cat "$point/$given" >"$point/$name/$given"
            fi
        done
    done
    unshare --mount --net --pid --fork true 2>/dev/null || skip "this machine does not let root make namespaces"
    # In the background, because a shell does not handle signals while it waits for a foreground command.
    unshare --mount --net --pid --fork --kill-child --mount-proc bash -c "$BED_SCRIPT" bed.sh join "$bed" "$@" <&0 &
    namespaces=$!
    status=0
    wait "$namespaces" || status=$?
    exit "$status"
}

# Only PID 1 inside joins the cgroups: on cgroup v2 the process that waits outside would keep the cgroup from having
# children with controllers.
join() {
    while read -r point _; do
        echo 1 >"$point/${1##*/}/cgroup.procs"
    done < <(hierarchies)
    exec unshare --cgroup bash -c "$BED_SCRIPT" bed.sh inside "$@"
}

# === Inside: an empty machine ===

inside() {
    bed=$1
    shift
    mount --make-rprivate /
    mount -t tmpfs keelet-node "$bed"
    # Hide a CNI configuration of the host.
    [ ! -d /etc/cni ] || mount -t tmpfs keelet-node /etc/cni
    # The same hierarchies, each with our own cgroup as its root.
    while read -r point type options; do
        umount "$point"
        case $type in
        cgroup2) mount -t cgroup2 cgroup2 "$point" ;;
        *)
            options=$(tr , '\n' <<<"$options" | grep -vxE 'rw|ro|xattr|noprefix|clone_children|release_agent=.*' | paste -sd ,)
            case $options in name=*) options=none,$options ;; esac
            mount -t cgroup -o "$options" cgroup "$point"
            ;;
        esac
    done < <(hierarchies)
    # On cgroup v2 a cgroup has either processes or child cgroups with controllers.
    if [ "$(findmnt --noheadings --output FSTYPE /sys/fs/cgroup)" = cgroup2 ]; then
        mkdir /sys/fs/cgroup/machine
        echo 1 >/sys/fs/cgroup/machine/cgroup.procs
    fi
    # The loopback interface is down in a new network namespace. SIOCSIFFLAGS with IFF_UP, because `ip` is not on every machine.
    perl -MSocket -e 'socket(my $s, AF_INET, SOCK_DGRAM, 0) or die "$!"; my $lo = pack("Z16 s x22", "lo", 1); ioctl($s, 0x8914, $lo) or die "$!"'
    # This shell is PID 1: it stays and reaps orphaned processes.
    status=0
    KEELET_NODE_DIR=$bed "$@" || status=$?
    exit "$status"
}

"$@"

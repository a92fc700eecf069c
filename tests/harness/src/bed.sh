# bed.sh outside COMMAND [ARGUMENT...]: runs a command on a machine of its own, as far as a node agent can tell.
#
# Mounts, network, processes and cgroups are private, all files are on a tmpfs, and nothing outlives the command. It
# takes root, bash, coreutils, util-linux and perl: what every Debian has. The command finds in its environment:
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

# === Outside: cgroups and namespaces, and nothing that is left ===

outside() {
    bed=$(mktemp -d -t keelet-node.XXXXXX)
    name=${bed##*/}
    mapfile -t points < <(hierarchies | cut -d ' ' -f 1)
    namespaces=
    leave() {
        trap '' INT TERM
        # Whoever reads what this shell says may have gone, and words to nobody would end it.
        exec &>/dev/null
        # The first process inside dies with it, and all others with that one. The kernel takes a moment to bury them.
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
        # A new one may use nothing of these before it is told, and then nobody can join it.
        for given in cpuset.cpus cpuset.mems; do
            if [ -e "$point/$given" ] && [ -z "$(cat "$point/$name/$given")" ]; then
                cat "$point/$given" >"$point/$name/$given"
            fi
        done
    done
    unshare --mount --net --pid --fork true 2>/dev/null || skip "this machine does not let root make namespaces"
    # Beside this shell, because one that waits for a command in front does not hear that it has to stop.
    unshare --mount --net --pid --fork --kill-child --mount-proc bash -c "$BED_SCRIPT" bed.sh join "$bed" "$@" <&0 &
    namespaces=$!
    status=0
    wait "$namespaces" || status=$?
    exit "$status"
}

# The first process inside joins the cgroups, and only that one: whoever waits for it outside would be in the way where there
# is one hierarchy for all.
join() {
    while read -r point _; do
        echo 1 >"$point/${1##*/}/cgroup.procs"
    done < <(hierarchies)
    exec unshare --cgroup bash -c "$BED_SCRIPT" bed.sh inside "$@"
}

# === Inside: a machine without anything ===

inside() {
    bed=$1
    shift
    mount --make-rprivate /
    mount -t tmpfs keelet-node "$bed"
    # A network that somebody has configured for this machine's pods is none of ours.
    [ ! -d /etc/cni ] || mount -t tmpfs keelet-node /etc/cni
    # The same hierarchies, each from our own cgroup on.
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
    # Where there is one hierarchy for all, a cgroup has processes or cgroups below it.
    if [ "$(findmnt --noheadings --output FSTYPE /sys/fs/cgroup)" = cgroup2 ]; then
        mkdir /sys/fs/cgroup/machine
        echo 1 >/sys/fs/cgroup/machine/cgroup.procs
    fi
    # The loopback interface is down in a new network. SIOCSIFFLAGS with IFF_UP, because `ip` is not on every machine.
    perl -MSocket -e 'socket(my $s, AF_INET, SOCK_DGRAM, 0) or die "$!"; my $lo = pack("Z16 s x22", "lo", 1); ioctl($s, 0x8914, $lo) or die "$!"'
    # This shell stays, and buries whoever has no other parent, as the first process of a machine does.
    status=0
    KEELET_NODE_DIR=$bed "$@" || status=$?
    exit "$status"
}

"$@"

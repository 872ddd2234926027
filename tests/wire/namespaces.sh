# shellcheck shell=bash
# A cluster out of network namespaces, for the tests and the benchmark of the wire; sourced. Everything lies in a user,
# network and mount namespace of its own and is gone with its last process; the machine's network is not touched.
#   cluster_enter "$0" "$@"   runs the script again inside; exit 77 where namespaces are not allowed
#   cluster_make N            nodes n0 ... with 10.77.0.1 ..., each on a veth to a bridge (two nodes: one veth pair)
#   on I COMMAND...           runs on node I, which has a host name of its own; in the background: on I ... &
#   cluster_rate 200mbit      what each node may send per second (tbf); fails where the kernel has none
#   cluster_run N R COMMAND.. one MPI job of N nodes with R ranks each, by Open MPI; started from node 0
#   link_bytes I              bytes that node I has received on its link
#   link_sent I               bytes that node I has sent
# A node has a network, a host name and a /dev/shm of its own, and the machine's file systems.
cluster_enter() {
    [ "${MR_CLUSTER_INSIDE:-}" = 1 ] && return 0
    for tool in ip unshare; do
        command -v $tool >/dev/null || { echo "SKIP: no '$tool' (scripts/setup test installs iproute2)"; exit 77; }
    done
    unshare --user --map-root-user --net --mount --uts true 2>/dev/null ||
        { echo "SKIP: this machine does not allow network namespaces"; exit 77; }
    MR_CLUSTER_INSIDE=1 exec unshare --user --map-root-user --net --mount --uts bash "$@"
}

cluster_make() {
    local n=$1 i
    mount -t tmpfs tmpfs /run && mkdir -p /run/netns || { echo "SKIP: cannot mount in a namespace here"; exit 77; }
    for ((i = 0; i < n; i++)); do
        ip netns add n$i 2>/dev/null || { echo "SKIP: 'ip netns add' is not allowed here"; exit 77; }
        ip -n n$i link set lo up
    done
    if [ "$n" = 2 ]; then
        ip link add v0 netns n0 type veth peer name v1 netns n1 || { echo "SKIP: no veth in this kernel"; exit 77; }
    else
        ip link add bridge0 type bridge 2>/dev/null || { echo "SKIP: no bridge in this kernel"; exit 77; }
        ip link set bridge0 up
        for ((i = 0; i < n; i++)); do
            ip link add b$i type veth peer name v$i netns n$i
            ip link set b$i master bridge0 up
        done
    fi
    for ((i = 0; i < n; i++)); do
        ip -n n$i addr add 10.77.0.$((i + 1))/24 dev v$i
        ip -n n$i link set v$i up
    done
    for ((i = 0; i < 100; i++)); do # UCX leaves out an interface that is not running yet
        [ "$(for ((k = 0; k < n; k++)); do ip netns exec n$k cat /sys/class/net/v$k/operstate; done | sort -u)" = up ] && return 0
        sleep 0.02
    done
    echo "the links between the nodes did not come up"
    exit 1
}

cluster_rate() {
    local i
    for ((i = 0; ; i++)); do
        ip -n n$i link show v$i >/dev/null 2>&1 || return 0
        tc -n n$i qdisc replace dev v$i root tbf rate "$1" burst 256kb latency 200ms || return 1
    done
}

# TCP is forced: namespaces share a boot id, so UCX would use shared memory between them.
on() {
    local node=$1
    shift
    exec ip netns exec n$node unshare --uts bash -c 'hostname "n$0"; mount -t tmpfs tmpfs /dev/shm; exec env UCX_TLS=tcp "$@"' "$node" "$@"
}

# Open MPI starts its daemons with an agent in place of ssh: AGENT HOST COMMAND...
cluster_run() {
    local nodes=$1 ranks=$2 i hosts=
    shift 2
    cat >/run/agent <<'SH'
#!/bin/bash
host=$1
shift
exec ip netns exec $host unshare --uts bash -c 'hostname "$0"; mount -t tmpfs tmpfs /dev/shm; export UCX_TLS=tcp; eval "$@"' $host "$@"
SH
    chmod +x /run/agent
    for ((i = 0; i < nodes; i++)); do hosts=$hosts,n$i:$ranks; done
    (on 0 mpirun --allow-run-as-root --host "${hosts#,}" -n $((nodes * ranks)) --map-by slot --bind-to none \
        --mca plm_rsh_agent /run/agent --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none --mca mpi_yield_when_idle 1 "$@")
}

link_bytes() {
    ip netns exec n$1 cat /sys/class/net/v$1/statistics/rx_bytes
}

link_sent() {
    ip netns exec n$1 cat /sys/class/net/v$1/statistics/tx_bytes
}

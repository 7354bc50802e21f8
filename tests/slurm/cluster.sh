#!/usr/bin/env bash
# cluster.sh FOLDER [--separate-networks] [NODE...]: a Slurm cluster, nodes n1 and n2 unless named.
#
# Everything lives below FOLDER and in namespaces of its own: no port, path or process is shared
# with this machine or with another cluster on it. It prints "ready PID" when all nodes are idle;
# whoever enters the namespaces of PID is on the login node. The cluster ends, all at once, with its
# standard input (so no later than the process that started it), or when this process is killed.
# With separate networks a line "down NODE" on standard input cuts that node off, "up NODE" joins it
# again.
set -euo pipefail

if [[ ${1:-} != inside ]]; then
  folder=$(realpath -- "${1:?a folder is needed}")
  user=()
  if [[ $(id -u) != 0 ]]; then user=(--user --map-current-user --keep-caps); fi
  exec unshare "${user[@]}" --pid --fork --kill-child --mount --uts --net -- \
    bash "$(realpath -- "$0")" inside "$folder" "${@:2}"
fi

folder=$2
shift 2
separate=
if [[ ${1:-} == --separate-networks ]]; then separate=1 && shift; fi
if (($# == 0)); then set -- n1 n2; fi
nodes=("$@")
umask 022 # Slurm refuses folders that others may write
trap exit INT TERM # the first process of a pid namespace ignores what it does not trap
read -r pid _ </proc/self/stat # still this machine's number for this process
mount -t proc proc /proc
cd "$folder"
mkdir -p etc state namespaces

# --- names and networks ---------------------------------------------------------------------------
# getaddrinfo takes a machine whose only address is 127.0.0.1 for one without IPv4, hence 10.77.0.1;
# on lo, because some kernels have no dummy devices.
hostname login
{
  echo "127.0.0.1 localhost"
  echo "10.77.0.1 login"
  for i in "${!nodes[@]}"; do echo "10.77.0.$((i + 2)) ${nodes[i]}"; done
} >hosts
mount --bind hosts /etc/hosts
ip link set lo up
if [[ $separate ]]; then
  ip link add bridge type bridge
  ip addr add 10.77.0.1/24 dev bridge
  ip link set bridge up
else
  ip addr add 10.77.0.1/32 dev lo
fi

declare -A enter
for i in "${!nodes[@]}"; do
  node=${nodes[i]} address=10.77.0.$((i + 2))
  touch "namespaces/$node.uts" "namespaces/$node.net"
  if [[ $separate ]]; then
    unshare --uts="namespaces/$node.uts" --net="namespaces/$node.net" -- hostname "$node"
    # Named by i: names of devices end after 15 characters.
    nsenter --net="namespaces/$node.net" -- ip link add eth0 type veth peer name "port$i" netns 1
    nsenter --net="namespaces/$node.net" -- ip addr add "$address/24" dev eth0
    nsenter --net="namespaces/$node.net" -- ip link set lo up
    nsenter --net="namespaces/$node.net" -- ip link set eth0 up
    ip link set "port$i" master bridge up
  else
    unshare --uts="namespaces/$node.uts" -- hostname "$node"
    mount --bind /proc/self/ns/net "namespaces/$node.net"
    ip addr add "$address/32" dev lo
  fi
  enter[$node]="nsenter --uts=namespaces/$node.uts --net=namespaces/$node.net --"
done

# --- configuration --------------------------------------------------------------------------------
# config_overrides: nodes claim more CPUs than this machine has.   EnforcePartLimits: what can never
# run is refused, not queued.   pgid: proctrack/cgroup, which clusters have, would write outside of
# FOLDER, and linuxproc loses orphans. Two things differ from cgroup: signals of a step reach the
# process group of each task, not the task alone; and a child of a task in a session of its own is
# neither killed nor, if it holds the task's output, let go: the job stays COMPLETING until it ends.
# sched/backfill: heterogeneous jobs need it; a job is looked at every second.   KillWait: 30 s elsewhere; SIGKILL comes 1 to 2 s
# after it.   InactiveLimit: a job whose srun was killed ends after 26 s.   MinJobAge: scontrol
# still knows a job when a test looks.
cat >etc/slurm.conf <<END
ClusterName=test
SlurmctldHost=login
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
MailProg=/bin/true
GresTypes=gpu
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
EnforcePartLimits=ALL
ReturnToService=2
JobRequeue=1
KillWait=3
InactiveLimit=10
MinJobAge=3600
$(for i in "${!nodes[@]}"; do
  echo "NodeName=${nodes[i]} Port=$((17001 + i)) CPUs=72 RealMemory=256000 Feature=gpu Gres=gpu:4"
done)
PartitionName=normal Default=YES Nodes=ALL State=UP
END
# Debian's Slurm looks for cgroups as it starts, whether or not a plugin uses them.
echo "CgroupPlugin=cgroup/v1" >etc/cgroup.conf
# Plain files do for --gpus-per-node=4; CUDA_VISIBLE_DEVICES is set for real devices only.
touch gpu{0..3}
echo "Name=gpu File=$folder/gpu[0-3]" >etc/gres.conf
mount --bind etc /etc/slurm

# --- daemons --------------------------------------------------------------------------------------
(umask 077 && head -c 128 /dev/urandom >munge.key)
# --force: munged objects to folders, such as /tmp, that others may write.
munged --foreground --force --num-threads=2 --key-file="$folder/munge.key" \
  --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
  --seed-file="$folder/munge.seed" --log-file="$folder/munged.log" </dev/null >>munged.out 2>&1 &
until [[ -S munge.socket ]]; do
  kill -0 $! || { cat munged.out munged.log && exit 1; }
  sleep 0.02
done
slurmctld -D </dev/null >/dev/null 2>>slurmctld.out &
for node in "${nodes[@]}"; do
  mkdir -p "$node"
  ${enter[$node]} slurmd -D -N "$node" </dev/null >/dev/null 2>>"$node.out" &
done

deadline=$((SECONDS + 20))
until [[ $(timeout 3 sinfo --noheader --format=%T 2>/dev/null) == idle ]]; do
  if ((SECONDS > deadline)); then
    echo "the Slurm cluster in $folder is not ready after 20 s"
    tail -n 20 ./*.log ./*.out
    exit 1
  fi
  sleep 0.05
done
echo "ready $pid"

while read -r state node; do
  for i in "${!nodes[@]}"; do
    if [[ ${nodes[i]} == "$node" ]]; then ip link set "port$i" "$state"; fi
  done
  echo "$state $node"
done

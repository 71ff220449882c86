#!/usr/bin/env bash
# Workers of one job (`leat run --cluster`) and faults of all kinds: FAULTS, 300, and SEED; `recovery`: how long a death holds it back; `balance`: how soon keys by Zipf's law are spread evenly; `matrix`: whether N shows; `planned`: what growth, shrinking and moves cost; `heads`: a million of them in an etcd of 64 MiB; `store`: faults of object stores and disks; `kafka`: between two topics, KILLS, 300, and CUTS, 60, of a worker from Kafka alone
set -eu
cd "$(dirname "$0")/../.."
leat=${LEAT:-build/release/leat}
case ${1:-} in
balance) shift && exec python3 tests/cluster/balance.py "$leat" "$@" ;;
kafka)
    shift
    python3 tests/kafka/test_cluster.py "$leat" --kills "${KILLS:-300}" "$@"
    exec python3 tests/kafka/test_cluster_cut.py "$leat" --cuts "${CUTS:-60}" "$@"
    ;;
store) shift && exec python3 tests/cluster/soak.py "$leat" --store --faults "${FAULTS:-60}" ${SEED:+--seed "$SEED"} "$@" ;;
planned) shift && exec python3 tests/cluster/planned.py "$leat" "$@" ;;
heads) LEAT_TEST_HEADS=${HEADS:-1000000} exec python3 tests/cluster/test_etcd.py build/release/tests/cluster/etcd_tool test_many_heads_fit ;;
matrix) shift && exec python3 tests/cluster/matrix.py "$leat" "$@" ;;
recovery)
    shift
    exec python3 tests/cluster/soak.py "$leat" --state 256 --faults "${FAULTS:-18}" --kind killed_and_back --kind killed \
        --kind killed_with_standby --kind leader_killed --kind unplugged --kind leader_stopped --kind leader_cut_from_peers "$@"
    ;;
esac
clock=build/release/tests/clock/libjumping_clock.so
exec python3 tests/cluster/soak.py "$leat" --faults "${FAULTS:-300}" ${SEED:+--seed "$SEED"} $([ ! -f $clock ] || echo "--clock $clock") "$@"
